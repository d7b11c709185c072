/* args.h: the command line, read by tables: one of all flags, one of all commands. Help, man page and completion are printed from the same tables.
 *
 * A flag is written --name VALUE or --name=VALUE, anywhere before "--". What follows "--" is never a flag: the COMMAND to run, where there is one, and
 * otherwise arguments that begin with a dash. */
#ifndef HOLDFAST_CTL_ARGS_H
#define HOLDFAST_CTL_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "errors.h"

enum { ARGS_MAX = 64, ENDPOINTS_MAX = 32 };

enum output { OUTPUT_SIMPLE, OUTPUT_TABLE, OUTPUT_JSON, OUTPUT_FIELDS };

enum flag_id {
	/* of every command */
	FLAG_ENDPOINTS, FLAG_CACERT, FLAG_CERT, FLAG_KEY, FLAG_SKIP_VERIFY, FLAG_USER, FLAG_OUTPUT, FLAG_HEX, FLAG_TIMEOUT, FLAG_HELP,
	/* of some */
	FLAG_SHARED, FLAG_TRY, FLAG_WAIT, FLAG_TTL, FLAG_OBSERVE,
	FLAG_PREFIX, FLAG_FROM_KEY, FLAG_LIMIT, FLAG_REV, FLAG_SORT, FLAG_ORDER, FLAG_KEYS_ONLY, FLAG_VALUES_ONLY, FLAG_COUNT_ONLY, FLAG_LOCAL,
	FLAG_LEASE, FLAG_PREV_KV, FLAG_IGNORE_VALUE, FLAG_IGNORE_LEASE,
	FLAG_EVENTS, FLAG_ONLY, FLAG_PROGRESS, FLAG_PHYSICAL,
	FLAG_ID, FLAG_ONCE, FLAG_KEYS, FLAG_CLUSTER, FLAG_LEARNER, FLAG_NO_PASSWORD,
	FLAG_COUNT
};

/* Zeroed, then args_init. Texts are borrowed from argv and the environment. */
struct args {
	const struct command *command;
	const char *words[ARGS_MAX]; /* the command's own arguments */
	int words_len;
	char **run;                  /* what came after "--", where the command runs something; NULL-terminated */
	uint64_t given[2];           /* bits by flag_id; see args_given */

	const char *endpoints;       /* as given; args_endpoint takes it apart */
	const char *cacert, *cert, *key; /* files; NULL: none */
	bool insecure_skip_tls_verify;
	const char *user;                /* NAME or NAME:PASSWORD; NULL: none */
	int64_t output;              /* enum output */
	bool hex;
	uint64_t timeout_ms;
	bool help;

	bool shared, try_only, observe;
	uint64_t wait_ms;
	int64_t ttl_s;
	bool prefix, from_key, keys_only, values_only, count_only, local, prev_kv, ignore_value, ignore_lease;
	int64_t limit, rev, sort, order; /* sort, order: RangeRequest's own numbers */
	int64_t lease, events, only, id;
	bool progress, physical, once, keys, cluster, learner, no_password;
};

struct ctl;
struct command {
	const char *name;           /* "get", "lease grant" */
	const char *usage;          /* of the arguments: "KEY [RANGE_END]" */
	int min, max;               /* how many there are */
	bool runs;                  /* takes "-- COMMAND" */
	const char *summary;        /* one line, for the list */
	const char *text;           /* paragraphs, each line at most 78 columns */
	const char *examples;       /* lines; those that begin with "#" explain the next */
	const enum flag_id *flags;  /* ends with FLAG_COUNT; NULL: none of its own */
	int (*function)(struct ctl *c);
};
extern const struct command commands[];
extern const int commands_len;

struct flag {
	const char *name;
	char letter;          /* '\0': none */
	const char *value;    /* what stands for its value in help; NULL: it takes none */
	const char *choices;  /* for completion: "asc desc"; NULL: anything */
	const char *help;
};
const struct flag *flag_by_id(enum flag_id id);
bool command_has_flag(const struct command *cmd, enum flag_id id); /* its own and those of every command */

void args_init(struct args *a, const char *environment_endpoints); /* NULL: the environment says nothing */
/* Reads argv[1..]. False: em has what is wrong in one line; a->command is set when that much was understood. */
bool args_parse(struct args *a, int argc, char **argv, struct errmsg *em);
bool args_given(const struct args *a, enum flag_id id);
/* The endpoints as HOST:PORT, or https://HOST:PORT under TLS; in order, without repetitions. tls: those without a scheme are under TLS. False: em has why. Free
 * each. */
bool args_endpoints(const char *list, bool tls, char *ret[ENDPOINTS_MAX], int *ret_len, struct errmsg *em);
void endpoints_free(char *endpoints[ENDPOINTS_MAX], int len);

/* The command whose name `words` begin with, and how many words that is; NULL: none. *ret_group: the first word is that of a group ("lease"). */
const struct command *command_find(const char *const *words, int len, int *ret_used, bool *ret_group);

#endif
