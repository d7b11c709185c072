/* cmd_lease.c: lease grant, revoke, keep-alive, ttl, list. */
#include <inttypes.h>
#include <stdio.h>

#include "ctl.h"
#include "base/clock.h"
#include "etcd/rpc.pb-c.h"
#include "session.h"
#include "signals.h"
#include "text.h"

static bool lease_word(struct ctl *c, int64_t *ret)
{
	struct errmsg em;
	if (text_lease(c->args.words[0], ret, &em))
		return true;
	ctl_error("%s", em.text);
	return false;
}

static void print_grant(struct ctl *c, const ProtobufCMessage *reply)
{
	const Etcdserverpb__LeaseGrantResponse *r = (const Etcdserverpb__LeaseGrantResponse *)reply;
	char id[24];
	(void)c;
	text_print_lease(id, r->id);
	out_printf("lease %s granted with TTL(%" PRId64 "s)\n", id, r->ttl);
}

int command_lease_grant(struct ctl *c)
{
	Etcdserverpb__LeaseGrantRequest r = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;
	struct errmsg em;
	if (!text_ttl(c->args.words[0], &r.ttl, &em)) {
		ctl_error("TTL: %s", em.text);
		return EXIT_USAGE;
	}
	r.id = c->args.id;
	return ctl_run(c, METHOD_LEASE_GRANT, &r.base, ASK_ONCE, print_grant, "grant a lease");
}

static void print_revoke(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)reply;
	out_printf("lease %s revoked\n", c->args.words[0]);
}

int command_lease_revoke(struct ctl *c)
{
	Etcdserverpb__LeaseRevokeRequest r = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;
	if (!lease_word(c, &r.id))
		return EXIT_USAGE;
	return ctl_run(c, METHOD_LEASE_REVOKE, &r.base, ASK_ONCE, print_revoke, "revoke lease %s", c->args.words[0]);
}

static void print_ttl(struct ctl *c, const ProtobufCMessage *reply)
{
	const Etcdserverpb__LeaseTimeToLiveResponse *r = (const Etcdserverpb__LeaseTimeToLiveResponse *)reply;
	char id[24];
	struct buf b = { .ptr = NULL };
	text_print_lease(id, r->id);
	if (r->ttl < 0) {
		out_printf("lease %s has ended\n", id);
		return;
	}
	out_printf("lease %s granted with TTL(%" PRId64 "s), remaining(%" PRId64 "s)\n", id, r->grantedttl, r->ttl);
	for (size_t i = 0; i < r->n_keys; i++) {
		out_bytes(&c->out, slice_of(r->keys[i].data, r->keys[i].len), &b);
		buf_append_byte(&b, '\n');
	}
	out_write(&b);
	buf_free(&b);
}

int command_lease_ttl(struct ctl *c)
{
	Etcdserverpb__LeaseTimeToLiveRequest r = ETCDSERVERPB__LEASE_TIME_TO_LIVE_REQUEST__INIT;
	if (!lease_word(c, &r.id))
		return EXIT_USAGE;
	r.keys = c->args.keys;
	return ctl_run(c, METHOD_LEASE_TIME_TO_LIVE, &r.base, ASK_AGAIN, print_ttl, "ask about lease %s", c->args.words[0]);
}

static void print_list(struct ctl *c, const ProtobufCMessage *reply)
{
	const Etcdserverpb__LeaseLeasesResponse *r = (const Etcdserverpb__LeaseLeasesResponse *)reply;
	(void)c;
	for (size_t i = 0; i < r->n_leases; i++) {
		char id[24];
		text_print_lease(id, r->leases[i]->id);
		out_printf("%s\n", id);
	}
}

int command_lease_list(struct ctl *c)
{
	Etcdserverpb__LeaseLeasesRequest r = ETCDSERVERPB__LEASE_LEASES_REQUEST__INIT;
	return ctl_run(c, METHOD_LEASE_LEASES, &r.base, ASK_AGAIN, print_list, "list the leases");
}

/* ---- keep-alive ---- */

static void print_renewal(struct ctl *c, const struct session *s)
{
	Etcdserverpb__LeaseKeepAliveResponse r = ETCDSERVERPB__LEASE_KEEP_ALIVE_RESPONSE__INIT;
	char id[24];
	r.id = s->lease;
	r.ttl = s->ttl_s;
	text_print_lease(id, s->lease);
	if (!out_message(&c->out, &r.base))
		out_printf("lease %s renewed with TTL(%" PRId64 "s)\n", id, s->ttl_s);
}

int command_lease_keep_alive(struct ctl *c)
{
	struct session s;
	int64_t lease;
	uint64_t told = 0, give_up;
	int code = EXIT_DONE;
	if (!lease_word(c, &lease))
		return EXIT_USAGE;
	session_init(&s, c->link, lease);
	give_up = boot_ms() + c->args.timeout_ms;
	while (!signals_stopped()) {
		uint64_t next = session_run(&s);
		if (s.renewals > told) {
			told = s.renewals;
			print_renewal(c, &s);
			if (!out_flush()) {
				code = out_failed();
				break;
			}
			if (c->args.once)
				break;
		}
		if (s.gone) {
			ctl_error("lease %s has ended", c->args.words[0]);
			code = EXIT_FAILED;
			break;
		}
		/* An unknown TTL: nothing was ever answered. */
		if (boot_ms() >= (told ? s.end_ms : give_up)) {
			ctl_error("cannot renew lease %s: no answer for %s", c->args.words[0], told ? "all of its life" : "all of the time-out");
			code = EXIT_NO_ANSWER;
			break;
		}
		link_run(c->link, next);
	}
	session_deinit(&s);
	return signals_stopped() ? EXIT_SIGNAL + signals_stopped() : code;
}
