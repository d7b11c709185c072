/* ctl.h: what every command has: its arguments, the link, how it prints, how it ends. */
#ifndef HOLDFAST_CTL_CTL_H
#define HOLDFAST_CTL_CTL_H

#include "args.h"
#include "ask.h"
#include "link.h"
#include "out.h"

enum exit_code {
	EXIT_DONE = 0,
	EXIT_FAILED = 1,     /* the cell refused, or it went wrong otherwise */
	EXIT_USAGE = 2,
	EXIT_NO_ANSWER = 3,  /* in time, by any replica; a write may have been carried out when the message says so */
	EXIT_LOST = 123,     /* the lease or the hold ended before it was released; locks verify: there is no such hold */
	EXIT_HELD = 124,     /* held by somebody else: --try, or --wait ran out */
	EXIT_NOT_RUN = 125,  /* lock, elect with a COMMAND: failed before it was started */
	EXIT_CANNOT_RUN = 126,
	EXIT_NOT_FOUND = 127,
	EXIT_SIGNAL = 128,   /* + the signal's number: interrupted, or how COMMAND ended */
};

struct ctl {
	struct args args;
	struct out out;
	struct link *link;
	char *endpoints[ENDPOINTS_MAX];
	int endpoints_len;
};

/* One line on standard error: "holdfastctl: " and the text. */
void ctl_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same for an answer that is not OK: what could not be done, where, why. Returns the exit code. */
int ctl_failed(const struct answer *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int ctl_failure_code(const struct answer *a);
/* Keys and values, as in `out`, for messages; cut when long. The buffer is one of a few that take turns. */
const char *ctl_show(const struct ctl *c, struct slice s);

/* An argument as bytes: as it is, or hexadecimal. Appends to *ret; false: an error was printed. */
bool ctl_bytes(const struct ctl *c, const char *word, struct buf *ret);
/* Standard input to its end, at most max bytes; a signal ends it. EXIT_DONE, or it was printed why not. */
int ctl_read_input(struct buf *ret, size_t max);

/* Asks, with --timeout. On success prints the reply unless the output is simple, in which case simple() does (NULL: nothing to say). */
typedef void (*print_fn)(struct ctl *c, const ProtobufCMessage *reply);
int ctl_run(struct ctl *c, enum method_id method, const ProtobufCMessage *request, enum ask_again again, print_fn simple, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));

/* The commands. */
int command_lock(struct ctl *c);
int command_elect(struct ctl *c);
int command_get(struct ctl *c);
int command_put(struct ctl *c);
int command_del(struct ctl *c);
int command_txn(struct ctl *c);
int command_watch(struct ctl *c);
int command_compact(struct ctl *c);
int command_lease_grant(struct ctl *c);
int command_lease_revoke(struct ctl *c);
int command_lease_keep_alive(struct ctl *c);
int command_lease_ttl(struct ctl *c);
int command_lease_list(struct ctl *c);
int command_locks_list(struct ctl *c);
int command_locks_show(struct ctl *c);
int command_locks_verify(struct ctl *c);
int command_locks_break(struct ctl *c);
int command_member_list(struct ctl *c);
int command_member_add(struct ctl *c);
int command_member_remove(struct ctl *c);
int command_member_update(struct ctl *c);
int command_member_promote(struct ctl *c);
int command_move_leader(struct ctl *c);
int command_endpoint_status(struct ctl *c);
int command_endpoint_health(struct ctl *c);
int command_endpoint_hashkv(struct ctl *c);
int command_auth_enable(struct ctl *c);
int command_auth_disable(struct ctl *c);
int command_auth_status(struct ctl *c);
int command_user_add(struct ctl *c);
int command_user_delete(struct ctl *c);
int command_user_get(struct ctl *c);
int command_user_list(struct ctl *c);
int command_user_passwd(struct ctl *c);
int command_user_grant_role(struct ctl *c);
int command_user_revoke_role(struct ctl *c);
int command_role_add(struct ctl *c);
int command_role_delete(struct ctl *c);
int command_role_get(struct ctl *c);
int command_role_list(struct ctl *c);
int command_role_grant_permission(struct ctl *c);
int command_role_revoke_permission(struct ctl *c);
int command_snapshot_save(struct ctl *c);
int command_version(struct ctl *c);
int command_help(struct ctl *c);

#endif
