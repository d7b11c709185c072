/* args.c: see args.h. */
#include "args.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text.h"

enum kind { KIND_BOOL, KIND_TEXT, KIND_DURATION, KIND_TTL, KIND_NUMBER, KIND_LEASE, KIND_CHOICE };

struct row {
	struct flag flag;
	enum kind kind;
	size_t at; /* offset in struct args */
	int64_t min, max;
};

#define AT(field) offsetof(struct args, field)
static const struct row rows[FLAG_COUNT] = {
	[FLAG_ENDPOINTS] = { { "endpoints", '\0', "HOST:PORT,...", NULL, "the replicas, with https:// before it under TLS; tried in turn (default $HOLDFAST_ENDPOINTS or 127.0.0.1:2379)" }, KIND_TEXT, AT(endpoints), 0, 0 },
	[FLAG_CACERT] = { { "cacert", '\0', "FILE", NULL, "CAs that may vouch for the replicas (default $HOLDFAST_CACERT or the system's)" }, KIND_TEXT, AT(cacert), 0, 0 },
	[FLAG_CERT] = { { "cert", '\0', "FILE", NULL, "our certificate, for replicas that ask for one (default $HOLDFAST_CERT)" }, KIND_TEXT, AT(cert), 0, 0 },
	[FLAG_KEY] = { { "key", '\0', "FILE", NULL, "its key (default $HOLDFAST_KEY)" }, KIND_TEXT, AT(key), 0, 0 },
	[FLAG_SKIP_VERIFY] = { { "insecure-skip-tls-verify", '\0', NULL, NULL, "believe whoever answers: for tests" }, KIND_BOOL, AT(insecure_skip_tls_verify), 0, 0 },
	[FLAG_USER] = { { "user", '\0', "NAME[:PASSWORD]", NULL, "who asks; the password comes from $HOLDFAST_PASSWORD or is asked for (default $HOLDFAST_USER)" }, KIND_TEXT, AT(user), 0, 0 },
	[FLAG_OUTPUT] = { { "output", 'o', "FORMAT", "simple table json fields", "simple, table, json or fields (default simple)" }, KIND_CHOICE, AT(output), 0, 0 },
	[FLAG_HEX] = { { "hex", '\0', NULL, NULL, "keys and values are given and printed in hexadecimal" }, KIND_BOOL, AT(hex), 0, 0 },
	[FLAG_TIMEOUT] = { { "timeout", '\0', "TIME", NULL, "how long to try, over all replicas (default 10s)" }, KIND_DURATION, AT(timeout_ms), 1, 0 },
	[FLAG_HELP] = { { "help", 'h', NULL, NULL, "explain, and do nothing" }, KIND_BOOL, AT(help), 0, 0 },

	[FLAG_SHARED] = { { "shared", '\0', NULL, NULL, "hold it together with other shared holders" }, KIND_BOOL, AT(shared), 0, 0 },
	[FLAG_TRY] = { { "try", '\0', NULL, NULL, "do not wait: exit with 124 when somebody else holds it" }, KIND_BOOL, AT(try_only), 0, 0 },
	[FLAG_WAIT] = { { "wait", '\0', "TIME", NULL, "wait at most so long, then exit with 124 (default: as long as it takes)" }, KIND_DURATION, AT(wait_ms), 0, 0 },
	[FLAG_TTL] = { { "ttl", '\0', "TIME", NULL, "life of the lease when nobody renews it (default 12s)" }, KIND_TTL, AT(ttl_s), 0, 0 },
	[FLAG_OBSERVE] = { { "observe", '\0', NULL, NULL, "do not campaign: print each leader and each vacancy" }, KIND_BOOL, AT(observe), 0, 0 },
	[FLAG_PREFIX] = { { "prefix", '\0', NULL, NULL, "every key that begins with KEY" }, KIND_BOOL, AT(prefix), 0, 0 },
	[FLAG_FROM_KEY] = { { "from-key", '\0', NULL, NULL, "every key from KEY on" }, KIND_BOOL, AT(from_key), 0, 0 },
	[FLAG_LIMIT] = { { "limit", '\0', "N", NULL, "at most N keys" }, KIND_NUMBER, AT(limit), 1, INT64_MAX },
	[FLAG_REV] = { { "rev", '\0', "REVISION", NULL, "as of this revision; of watch: the first one to tell" }, KIND_NUMBER, AT(rev), 1, INT64_MAX },
	[FLAG_SORT] = { { "sort", '\0', "BY", "key version create mod value", "by key, version, create, mod or value" }, KIND_CHOICE, AT(sort), 0, 0 },
	[FLAG_ORDER] = { { "order", '\0', "ORDER", "none asc desc", "asc or desc" }, KIND_CHOICE, AT(order), 0, 0 },
	[FLAG_KEYS_ONLY] = { { "keys-only", '\0', NULL, NULL, "print no values, and do not fetch them" }, KIND_BOOL, AT(keys_only), 0, 0 },
	[FLAG_VALUES_ONLY] = { { "values-only", '\0', NULL, NULL, "print no keys (simple output)" }, KIND_BOOL, AT(values_only), 0, 0 },
	[FLAG_COUNT_ONLY] = { { "count-only", '\0', NULL, NULL, "only how many there are" }, KIND_BOOL, AT(count_only), 0, 0 },
	[FLAG_LOCAL] = { { "local", '\0', NULL, NULL, "let one replica answer from what it has: fast, perhaps out of date" }, KIND_BOOL, AT(local), 0, 0 },
	[FLAG_LEASE] = { { "lease", '\0', "LEASE", NULL, "attach the key to this lease: it ends with it" }, KIND_LEASE, AT(lease), 0, 0 },
	[FLAG_PREV_KV] = { { "prev-kv", '\0', NULL, NULL, "print what was there before too" }, KIND_BOOL, AT(prev_kv), 0, 0 },
	[FLAG_IGNORE_VALUE] = { { "ignore-value", '\0', NULL, NULL, "keep the value as it is; the key must exist" }, KIND_BOOL, AT(ignore_value), 0, 0 },
	[FLAG_IGNORE_LEASE] = { { "ignore-lease", '\0', NULL, NULL, "keep the lease as it is; the key must exist" }, KIND_BOOL, AT(ignore_lease), 0, 0 },
	[FLAG_EVENTS] = { { "events", '\0', "N", NULL, "end after N of them" }, KIND_NUMBER, AT(events), 1, INT64_MAX },
	[FLAG_ONLY] = { { "only", '\0', "TYPE", "put delete", "only events of this type, put or delete" }, KIND_CHOICE, AT(only), 0, 0 },
	[FLAG_PROGRESS] = { { "progress", '\0', NULL, NULL, "tell the revision from time to time when nothing happens" }, KIND_BOOL, AT(progress), 0, 0 },
	[FLAG_PHYSICAL] = { { "physical", '\0', NULL, NULL, "answer only when the space has been given back" }, KIND_BOOL, AT(physical), 0, 0 },
	[FLAG_ID] = { { "id", '\0', "LEASE", NULL, "the ID it shall have (default: one that is free)" }, KIND_LEASE, AT(id), 0, 0 },
	[FLAG_ONCE] = { { "once", '\0', NULL, NULL, "renew it once, and end" }, KIND_BOOL, AT(once), 0, 0 },
	[FLAG_KEYS] = { { "keys", '\0', NULL, NULL, "list the keys that are attached to it" }, KIND_BOOL, AT(keys), 0, 0 },
	[FLAG_CLUSTER] = { { "cluster", '\0', NULL, NULL, "ask every member of the cell, whichever endpoints are given" }, KIND_BOOL, AT(cluster), 0, 0 },
	[FLAG_LEARNER] = { { "learner", '\0', NULL, NULL, "it copies the log and has no vote until it is promoted" }, KIND_BOOL, AT(learner), 0, 0 },
	[FLAG_NO_PASSWORD] = { { "no-password", '\0', NULL, NULL, "no password will do: for who comes with a certificate" }, KIND_BOOL, AT(no_password), 0, 0 },
};

const struct flag *flag_by_id(enum flag_id id)
{
	ASSERT((unsigned)id < FLAG_COUNT);
	return &rows[id].flag;
}

bool command_has_flag(const struct command *cmd, enum flag_id id)
{
	if (id <= FLAG_HELP)
		return true;
	for (const enum flag_id *f = cmd->flags; f && *f != FLAG_COUNT; f++) {
		if (*f == id)
			return true;
	}
	return false;
}

void args_init(struct args *a, const char *environment_endpoints)
{
	*a = (struct args){ .timeout_ms = 10000, .ttl_s = 12, .only = -1 };
	a->endpoints = environment_endpoints && *environment_endpoints ? environment_endpoints : "127.0.0.1:2379";
}

bool args_given(const struct args *a, enum flag_id id)
{
	return a->given[id / 64] >> (id % 64) & 1;
}

/* ---- values ---- */

static bool choose(const char *choices, const char *value, int64_t *ret)
{
	int64_t n = 0;
	for (const char *at = choices; *at; n++) {
		size_t len = strcspn(at, " ");
		if (strlen(value) == len && memcmp(at, value, len) == 0) {
			*ret = n;
			return true;
		}
		at += len + (at[len] == ' ');
	}
	return false;
}

static bool set_value(struct args *a, enum flag_id id, const char *value, struct errmsg *em)
{
	const struct row *r = &rows[id];
	void *at = (char *)a + r->at;
	struct errmsg why = { .text = "" };
	uint64_t ms;
	bool fine = true;
	switch (r->kind) {
	case KIND_BOOL:
		*(bool *)at = true;
		break;
	case KIND_TEXT:
		*(const char **)at = value;
		break;
	case KIND_DURATION:
		fine = text_duration(value, &ms, &why);
		if (fine && ms < (uint64_t)r->min) {
			errmsg_set(&why, "it must be more than no time");
			fine = false;
		}
		if (fine)
			*(uint64_t *)at = ms;
		break;
	case KIND_TTL:
		fine = text_ttl(value, at, &why);
		break;
	case KIND_NUMBER:
		fine = text_i64(value, r->min, r->max, at, &why);
		break;
	case KIND_LEASE:
		fine = text_lease(value, at, &why);
		break;
	case KIND_CHOICE:
		fine = choose(r->flag.choices, value, at);
		if (!fine)
			errmsg_set(&why, "'%s' is none of: %s", value, r->flag.choices);
		break;
	}
	if (!fine)
		errmsg_set(em, "--%s: %s", r->flag.name, why.text);
	else
		a->given[id / 64] |= UINT64_C(1) << (id % 64);
	return fine;
}

/* ---- the line ---- */

static enum flag_id flag_named(const char *word, size_t len)
{
	for (int id = 0; id < FLAG_COUNT; id++) {
		const struct flag *f = &rows[id].flag;
		if (len == 2 && word[0] == '-' && f->letter && word[1] == f->letter)
			return (enum flag_id)id;
		if (len > 2 && memcmp(word, "--", 2) == 0 && strlen(f->name) == len - 2 && memcmp(f->name, word + 2, len - 2) == 0)
			return (enum flag_id)id;
	}
	return FLAG_COUNT;
}

/* argv[*i] begins with a dash. */
static bool take_flag(struct args *a, int argc, char **argv, int *i, struct errmsg *em)
{
	const char *word = argv[*i], *eq = strchr(word, '='), *value = eq ? eq + 1 : NULL;
	size_t len = eq ? (size_t)(eq - word) : strlen(word);
	enum flag_id id = flag_named(word, len);
	if (id == FLAG_COUNT) {
		errmsg_set(em, "no flag '%.*s' (an argument that begins with a dash goes after '--')", (int)len, word);
		return false;
	}
	if (!rows[id].flag.value && value) {
		errmsg_set(em, "--%s takes no value", rows[id].flag.name);
		return false;
	}
	if (rows[id].flag.value && !value) {
		if (*i + 1 >= argc) {
			errmsg_set(em, "--%s needs a value: %s", rows[id].flag.name, rows[id].flag.value);
			return false;
		}
		value = argv[++*i];
	}
	return set_value(a, id, value, em);
}

const struct command *command_find(const char *const *words, int len, int *ret_used, bool *ret_group)
{
	char two[64];
	*ret_group = false;
	for (int i = 0; len > 0 && i < commands_len; i++) {
		const char *name = commands[i].name;
		size_t first = strcspn(name, " ");
		*ret_used = name[first] ? 2 : 1;
		if (strlen(words[0]) != first || memcmp(words[0], name, first) != 0)
			continue;
		if (!name[first])
			return &commands[i];
		*ret_group = true;
		if (len > 1) {
			snprintf(two, sizeof(two), "%s %s", words[0], words[1]);
			if (strcmp(two, name) == 0)
				return &commands[i];
		}
	}
	return NULL;
}

static bool find_command(struct args *a, struct errmsg *em)
{
	int used = 0;
	bool group;
	if (a->words_len == 0) {
		if (!a->help)
			errmsg_set(em, "no command given; see 'holdfastctl help'");
		return a->help;
	}
	a->command = command_find(a->words, a->words_len, &used, &group);
	if (!a->command) {
		if (group && a->words_len > 1)
			errmsg_set(em, "no command '%s %s'; see 'holdfastctl help %s'", a->words[0], a->words[1], a->words[0]);
		else if (group)
			errmsg_set(em, "'%s' needs to be told what; see 'holdfastctl help %s'", a->words[0], a->words[0]);
		else
			errmsg_set(em, "no command '%s'; see 'holdfastctl help'", a->words[0]);
		return a->help && group;
	}
	a->words_len -= used;
	memmove(a->words, a->words + used, (size_t)a->words_len * sizeof(a->words[0]));
	return true;
}

static bool check_use(const struct args *a, struct errmsg *em)
{
	const struct command *cmd = a->command;
	for (int id = 0; id < FLAG_COUNT; id++) {
		if (args_given(a, (enum flag_id)id) && !command_has_flag(cmd, (enum flag_id)id)) {
			errmsg_set(em, "%s has no flag --%s", cmd->name, rows[id].flag.name);
			return false;
		}
	}
	if (a->words_len < cmd->min || a->words_len > cmd->max) {
		errmsg_set(em, "too %s arguments; usage: holdfastctl %s%s%s%s", a->words_len < cmd->min ? "few" : "many", cmd->name,
			   *cmd->usage ? " " : "", cmd->usage, cmd->runs ? " [-- COMMAND...]" : "");
		return false;
	}
	if (a->run && !a->run[0]) {
		errmsg_set(em, "there is no command after '--'");
		return false;
	}
	return true;
}

static bool add_word(struct args *a, const char *word, struct errmsg *em)
{
	if (a->words_len == ARGS_MAX) {
		errmsg_set(em, "more than %d arguments", ARGS_MAX);
		return false;
	}
	a->words[a->words_len++] = word;
	return true;
}

bool args_parse(struct args *a, int argc, char **argv, struct errmsg *em)
{
	int i = 1;
	for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
		bool is_flag = argv[i][0] == '-' && argv[i][1];
		if (!(is_flag ? take_flag(a, argc, argv, &i, em) : add_word(a, argv[i], em)))
			return false;
	}
	if (!find_command(a, em))
		return false;
	if (a->help)
		return true;
	if (i < argc && a->command->runs) {
		a->run = argv + i + 1;
	} else {
		for (i++; i < argc; i++) {
			if (!add_word(a, argv[i], em))
				return false;
		}
	}
	return check_use(a, em);
}

/* ---- endpoints ---- */

void endpoints_free(char *endpoints[ENDPOINTS_MAX], int len)
{
	while (len > 0)
		free(endpoints[--len]);
}

/* A host with colons stands in brackets. */
static bool is_host_port(const char *e)
{
	const char *colon = strrchr(e, ':');
	size_t host = colon ? (size_t)(colon - e) : 0;
	long port;
	if (host == 0 || strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) > 5)
		return false;
	port = strtol(colon + 1, NULL, 10);
	if (port < 1 || port > 65535 || strpbrk(e, "/ \t"))
		return false;
	return e[0] == '[' ? host > 2 && e[host - 1] == ']' : memchr(e, ':', host) == NULL && !strpbrk(e, "[]");
}

/* Of what may have a scheme before it and a slash after it; NULL: it is neither. */
static char *endpoint_of(const char *text, size_t len, bool tls, struct errmsg *em)
{
	static const char plain[] = "http://", secure[] = "https://";
	char *e;
	size_t before;
	if (len >= strlen(secure) && memcmp(text, secure, strlen(secure)) == 0) {
		tls = true;
		text += strlen(secure);
		len -= strlen(secure);
	} else if (len >= strlen(plain) && memcmp(text, plain, strlen(plain)) == 0) {
		tls = false;
		text += strlen(plain);
		len -= strlen(plain);
	}
	while (len > 0 && text[len - 1] == '/')
		len--;
	before = tls ? strlen(secure) : 0;
	e = mem_zalloc(before + len + 1);
	memcpy(e, secure, before);
	memcpy(e + before, text, len);
	if (!is_host_port(e + before)) {
		errmsg_set(em, "'%s' is not of the form HOST:PORT", e + before);
		free(e);
		return NULL;
	}
	return e;
}

static bool is_known(char *endpoints[ENDPOINTS_MAX], int len, const char *e)
{
	for (int i = 0; i < len; i++) {
		if (strcmp(endpoints[i], e) == 0)
			return true;
	}
	return false;
}

bool args_endpoints(const char *list, bool tls, char *ret[ENDPOINTS_MAX], int *ret_len, struct errmsg *em)
{
	int len = 0;
	for (const char *at = list; *at;) {
		size_t n = strcspn(at, ",");
		char *e = n ? endpoint_of(at, n, tls, em) : NULL;
		if (n && !e)
			goto fail;
		at += n + (at[n] == ',');
		if (!e)
			continue;
		if (is_known(ret, len, e)) {
			free(e);
		} else if (len == ENDPOINTS_MAX) {
			errmsg_set(em, "more than %d endpoints", ENDPOINTS_MAX);
			free(e);
			goto fail;
		} else {
			ret[len++] = e;
		}
	}
	if (len == 0) {
		errmsg_set(em, "no endpoint given");
		return false;
	}
	*ret_len = len;
	return true;
fail:
	endpoints_free(ret, len);
	return false;
}
