/* options.c: one table of flags; everything else follows from it, --help too. */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "net/url.h"
#include "version.h"

enum flag_kind { FLAG_TEXT, FLAG_URLS, FLAG_NUMBER, FLAG_MS, FLAG_DURATION, FLAG_OWN };

struct flag {
	const char *name;
	enum flag_kind kind;
	size_t at; /* offset in struct options */
	uint64_t min, max;
	const char *fallback; /* default, in the flag's own form; NULL: computed */
	const char *help;
	bool (*set)(struct options *o, const char *value, struct errmsg *em); /* FLAG_OWN */
};

static bool set_cluster(struct options *o, const char *value, struct errmsg *em);
static bool set_state(struct options *o, const char *value, struct errmsg *em);
static bool set_level(struct options *o, const char *value, struct errmsg *em);
static bool set_compaction_mode(struct options *o, const char *value, struct errmsg *em);
static bool set_retention(struct options *o, const char *value, struct errmsg *em);

#define AT(field) offsetof(struct options, field)
static const struct flag flags[] = {
	{ "name", FLAG_TEXT, AT(name), 0, 0, "default", "name of this member", NULL },
	{ "data-dir", FLAG_TEXT, AT(data_dir), 0, 0, NULL, "directory for the data (default NAME.holdfast)", NULL },
	{ "listen-client-urls", FLAG_URLS, AT(listen_client), 0, 0, "http://127.0.0.1:2379", "where clients are served", NULL },
	{ "advertise-client-urls", FLAG_URLS, AT(advertise_client), 0, 0, NULL, "client URLs told to others (default: where clients are served)", NULL },
	{ "listen-peer-urls", FLAG_URLS, AT(listen_peer), 0, 0, "http://127.0.0.1:2380", "where other members are served", NULL },
	{ "initial-advertise-peer-urls", FLAG_URLS, AT(initial_advertise_peer), 0, 0, NULL, "this member's peer URLs (default: --listen-peer-urls)", NULL },
	{ "initial-cluster", FLAG_OWN, 0, 0, 0, NULL, "NAME=PEER-URL,... of all members of a new cell (default: this one alone)", set_cluster },
	{ "initial-cluster-state", FLAG_OWN, 0, 0, 0, "new", "'new' or 'existing'", set_state },
	{ "initial-cluster-token", FLAG_TEXT, AT(initial_cluster_token), 0, 0, "etcd-cluster", "sets cells with equal addresses apart", NULL },
	{ "heartbeat-interval", FLAG_MS, AT(heartbeat_interval_ms), 5, 10000, "100", "ms between a leader's heartbeats", NULL },
	{ "election-timeout", FLAG_MS, AT(election_timeout_ms), 50, 50000, "1000", "ms of silence after which a leader is replaced", NULL },
	{ "snapshot-count", FLAG_NUMBER, AT(snapshot_count), 1, UINT64_MAX, "100000", "log entries between snapshots", NULL },
	{ "max-txn-ops", FLAG_NUMBER, AT(max_txn_ops), 1, 1000000, "128", "operations in one transaction, at the most", NULL },
	{ "max-request-bytes", FLAG_NUMBER, AT(max_request_bytes), 1024, 64U << 20, "1572864", "bytes of one request, at the most", NULL },
	{ "quota-backend-bytes", FLAG_NUMBER, AT(quota_backend_bytes), 0, UINT64_MAX, "0", "memory for keys and values; above it what grows is refused (0: 2 GiB)", NULL },
	{ "auto-compaction-mode", FLAG_OWN, 0, 0, 0, "periodic", "'periodic' or 'revision'", set_compaction_mode },
	{ "auto-compaction-retention", FLAG_OWN, 0, 0, 0, "5m", "history kept: a duration (or hours), or a number of revisions; 0: all of it", set_retention },
	{ "max-concurrent-streams", FLAG_NUMBER, AT(max_concurrent_streams), 1, UINT32_MAX, "4294967295", "streams one connection may have open", NULL },
	{ "grpc-keepalive-min-time", FLAG_DURATION, AT(grpc_keepalive_min_time_ms), 0, 86400000, "5s", "shortest time between a client's pings", NULL },
	{ "grpc-keepalive-interval", FLAG_DURATION, AT(grpc_keepalive_interval_ms), 0, 86400000, "2h", "time after which a quiet client is pinged (0: never)", NULL },
	{ "grpc-keepalive-timeout", FLAG_DURATION, AT(grpc_keepalive_timeout_ms), 0, 86400000, "20s", "time for its answer", NULL },
	{ "log-level", FLAG_OWN, 0, 0, 0, "info", "debug, info, warn or error", set_level },
};
#define FLAGS_LEN (sizeof(flags) / sizeof(flags[0]))

static char *copy(const char *s, size_t len)
{
	char *c = mem_alloc(len + 1);
	memcpy(c, s, len);
	c[len] = '\0';
	return c;
}

static void urls_free(struct url_list *l)
{
	while (l->len)
		free(l->urls[--l->len]);
}

static bool add_url(struct url_list *l, const char *text, size_t len, struct errmsg *em)
{
	char host[256], port[8];
	char *url = copy(text, len);
	if (l->len == OPTIONS_URLS_MAX) {
		errmsg_set(em, "more than %d URLs", OPTIONS_URLS_MAX);
	} else if (!url_split(url, host, sizeof(host), port, sizeof(port))) {
		errmsg_set(em, "'%s' is not of the form http://HOST:PORT", url);
	} else {
		while (len && url[len - 1] == '/')
			url[--len] = '\0';
		l->urls[l->len++] = url;
		return true;
	}
	free(url);
	return false;
}

static bool set_urls(struct url_list *l, const char *value, struct errmsg *em)
{
	urls_free(l);
	for (const char *at = value; *at;) {
		size_t len = strcspn(at, ",");
		if (len && !add_url(l, at, len, em))
			return false;
		at += len + (at[len] == ',');
	}
	if (!l->len)
		errmsg_set(em, "no URL given");
	return l->len > 0;
}

static bool set_number(uint64_t *ret, const char *value, uint64_t min, uint64_t max, struct errmsg *em)
{
	errno = 0;
	unsigned long long v = strtoull(value, NULL, 10);
	/* strtoull would also take spaces and signs, and read -1 as a very large number. */
	if (errno || !*value || value[strspn(value, "0123456789")]) {
		errmsg_set(em, "'%s' is not a number", value);
		return false;
	}
	if (v < min || v > max) {
		errmsg_set(em, "%llu is not within %llu..%llu", v, (unsigned long long)min, (unsigned long long)max);
		return false;
	}
	*ret = v;
	return true;
}

/* Go's durations: 1h30m, 500ms; the units that make sense here. */
static bool parse_duration(const char *value, uint64_t *ret_ms)
{
	static const struct {
		const char *name;
		double ms;
	} units[] = { { "ms", 1 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 } };
	double total = 0;
	if (strcmp(value, "0") == 0) {
		*ret_ms = 0;
		return true;
	}
	if (!*value)
		return false;
	while (*value) {
		char *end;
		size_t i, digits = strspn(value, "0123456789.");
		double v = strtod(value, &end);
		if (digits == 0 || end != value + digits) /* strtod knows more numbers than we do */
			return false;
		for (i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
			if (strncmp(end, units[i].name, strlen(units[i].name)) == 0)
				break;
		}
		if (i == sizeof(units) / sizeof(units[0]))
			return false;
		total += v * units[i].ms;
		value = end + strlen(units[i].name);
	}
	if (!(total < 1e15))
		return false;
	*ret_ms = (uint64_t)total;
	return true;
}

static bool set_duration(uint64_t *ret, const char *value, const struct flag *f, struct errmsg *em)
{
	if (!parse_duration(value, ret)) {
		errmsg_set(em, "'%s' is not a duration such as 500ms, 20s or 2h", value);
		return false;
	}
	if (*ret < f->min || *ret > f->max) {
		errmsg_set(em, "%s is not within %llums..%llums", value, (unsigned long long)f->min, (unsigned long long)f->max);
		return false;
	}
	return true;
}

static struct initial_member *member_named(struct options *o, const char *name, size_t len)
{
	for (size_t i = 0; i < o->members_len; i++) {
		if (strlen(o->members[i].name) == len && memcmp(o->members[i].name, name, len) == 0)
			return &o->members[i];
	}
	if (o->members_len == OPTIONS_MEMBERS_MAX)
		return NULL;
	o->members[o->members_len].name = copy(name, len);
	return &o->members[o->members_len++];
}

static void members_free(struct options *o)
{
	while (o->members_len) {
		struct initial_member *m = &o->members[--o->members_len];
		free(m->name);
		urls_free(&m->peer_urls);
	}
}

static bool set_cluster(struct options *o, const char *value, struct errmsg *em)
{
	members_free(o);
	for (const char *at = value; *at;) {
		size_t len = strcspn(at, ",");
		const char *eq = memchr(at, '=', len);
		struct initial_member *m;
		if (!eq || eq == at) {
			errmsg_set(em, "'%.*s' is not of the form NAME=http://HOST:PORT", (int)len, at);
			return false;
		}
		m = member_named(o, at, (size_t)(eq - at));
		if (!m) {
			errmsg_set(em, "more than %d members", OPTIONS_MEMBERS_MAX);
			return false;
		}
		if (!add_url(&m->peer_urls, eq + 1, len - (size_t)(eq + 1 - at), em))
			return false;
		at += len + (at[len] == ',');
	}
	/* An empty variable in a script must not make a cell of every replica. */
	if (!o->members_len)
		errmsg_set(em, "no member given");
	return o->members_len > 0;
}

static bool set_state(struct options *o, const char *value, struct errmsg *em)
{
	o->existing = strcmp(value, "existing") == 0;
	if (!o->existing && strcmp(value, "new") != 0) {
		errmsg_set(em, "'%s' is neither 'new' nor 'existing'", value);
		return false;
	}
	return true;
}

static bool set_level(struct options *o, const char *value, struct errmsg *em)
{
	if (!log_parse_level(value, &o->log_level)) {
		errmsg_set(em, "'%s' is none of debug, info, warn, error", value);
		return false;
	}
	return true;
}

/* The mode decides how the retention is read, and may come after it: both are settled in finish(). */
static const char *compaction_mode, *compaction_retention;

static bool set_compaction_mode(struct options *o, const char *value, struct errmsg *em)
{
	(void)o;
	if (strcmp(value, "periodic") != 0 && strcmp(value, "revision") != 0) {
		errmsg_set(em, "'%s' is neither 'periodic' nor 'revision'", value);
		return false;
	}
	compaction_mode = value;
	return true;
}

static bool set_retention(struct options *o, const char *value, struct errmsg *em)
{
	(void)o;
	(void)em;
	compaction_retention = value;
	return true;
}

static const struct flag *find_flag(const char *name, size_t len)
{
	for (size_t i = 0; i < FLAGS_LEN; i++) {
		if (strlen(flags[i].name) == len && memcmp(flags[i].name, name, len) == 0)
			return &flags[i];
	}
	return NULL;
}

static bool finish_retention(struct options *o, const char *v, struct errmsg *em)
{
	if (strcmp(compaction_mode, "revision") == 0)
		return set_number(&o->auto_compaction_revisions, v, 0, INT64_MAX, em);
	if (v[strspn(v, "0123456789")] == '\0' && *v) { /* etcd: a plain number is hours */
		if (!set_number(&o->auto_compaction_ms, v, 0, 1000000, em))
			return false;
		o->auto_compaction_ms *= 3600000;
		return true;
	}
	if (!parse_duration(v, &o->auto_compaction_ms)) {
		errmsg_set(em, "'%s' is not a duration such as 5m or 1h", v);
		return false;
	}
	return true;
}

static bool finish_compaction(struct options *o, struct errmsg *em)
{
	static const char name[] = "auto-compaction-retention";
	struct errmsg why = { .text = "" };
	const char *v = compaction_retention;
	/* The default is the other mode's. */
	if (strcmp(compaction_mode, "revision") == 0 && v == find_flag(name, sizeof(name) - 1)->fallback)
		v = "0";
	if (finish_retention(o, v, &why))
		return true;
	errmsg_set(em, "--%s: %s", name, why.text);
	return false;
}

static bool set_flag(struct options *o, const struct flag *f, const char *value, struct errmsg *em)
{
	void *at = (char *)o + f->at;
	switch (f->kind) {
	case FLAG_TEXT:
		if (!*value) {
			errmsg_set(em, "must not be empty");
			return false;
		}
		free(*(char **)at);
		*(char **)at = copy(value, strlen(value));
		return true;
	case FLAG_URLS:
		return set_urls(at, value, em);
	case FLAG_NUMBER:
	case FLAG_MS:
		return set_number(at, value, f->min, f->max, em);
	case FLAG_DURATION:
		return set_duration(at, value, f, em);
	case FLAG_OWN:
		return f->set(o, value, em);
	}
	return false;
}

static void print_help(void)
{
	printf("holdfastd: one replica of a distributed lock service that speaks etcd v3's API\n\n"
	       "Usage: holdfastd [--flag value | --flag=value]...\n\n"
	       "Without flags: a cell of one, clients on http://127.0.0.1:2379, data in ./default.holdfast.\n\n");
	for (size_t i = 0; i < FLAGS_LEN; i++)
		printf("  --%-29s %s%s%s%s\n", flags[i].name, flags[i].help, flags[i].fallback ? " (default " : "",
		       flags[i].fallback ? flags[i].fallback : "", flags[i].fallback ? ")" : "");
	printf("  --%-29s %s\n  --%-29s %s\n", "version", "print the version and exit", "help", "print this and exit");
}

static void urls_default(struct url_list *l, const struct url_list *from)
{
	for (size_t i = 0; l->len == i && i < from->len; i++)
		l->urls[l->len++] = copy(from->urls[i], strlen(from->urls[i]));
}

static bool same_urls(const struct url_list *a, const struct url_list *b)
{
	if (a->len != b->len)
		return false;
	for (size_t i = 0; i < a->len; i++) {
		size_t j = 0;
		while (j < b->len && strcmp(a->urls[i], b->urls[j]) != 0)
			j++;
		if (j == b->len)
			return false;
	}
	return true;
}

static bool finish_members(struct options *o, struct errmsg *em)
{
	struct initial_member *self = NULL;
	if (!o->data_dir) {
		o->data_dir = mem_alloc(strlen(o->name) + sizeof(".holdfast"));
		sprintf(o->data_dir, "%s.holdfast", o->name);
	}
	urls_default(&o->advertise_client, &o->listen_client);
	urls_default(&o->initial_advertise_peer, &o->listen_peer);
	if (!o->members_len) {
		self = member_named(o, o->name, strlen(o->name));
		urls_default(&self->peer_urls, &o->initial_advertise_peer);
	}
	for (size_t i = 0; i < o->members_len; i++) {
		if (strcmp(o->members[i].name, o->name) == 0)
			self = &o->members[i];
	}
	if (!self) {
		errmsg_set(em, "--initial-cluster has no member named '%s' (--name)", o->name);
		return false;
	}
	if (!same_urls(&self->peer_urls, &o->initial_advertise_peer)) {
		errmsg_set(em, "--initial-cluster has %s=%s, but --initial-advertise-peer-urls is %s", o->name, self->peer_urls.urls[0],
			   o->initial_advertise_peer.urls[0]);
		return false;
	}
	return true;
}

/* Two members at one address would be one member: their IDs are made of it. */
static bool addresses_differ(const struct options *o, struct errmsg *em)
{
	const char *seen[OPTIONS_MEMBERS_MAX * OPTIONS_URLS_MAX];
	size_t len = 0;
	for (size_t i = 0; i < o->members_len; i++) {
		const struct url_list *l = &o->members[i].peer_urls;
		for (size_t j = 0; j < l->len; j++) {
			for (size_t k = 0; k < len; k++) {
				if (strcmp(seen[k], l->urls[j]) == 0) {
					errmsg_set(em, "--initial-cluster has %s twice", l->urls[j]);
					return false;
				}
			}
			seen[len++] = l->urls[j];
		}
	}
	return true;
}

static bool finish(struct options *o, struct errmsg *em)
{
	if (!finish_compaction(o, em) || !finish_members(o, em) || !addresses_differ(o, em))
		return false;
	if (o->election_timeout_ms < 5 * o->heartbeat_interval_ms) {
		errmsg_set(em, "--election-timeout (%llu) must be at least five times --heartbeat-interval (%llu)",
			   (unsigned long long)o->election_timeout_ms, (unsigned long long)o->heartbeat_interval_ms);
		return false;
	}
	if (!o->quota_backend_bytes)
		o->quota_backend_bytes = UINT64_C(2) << 30;
	return true;
}

enum options_result options_parse(struct options *o, int argc, char **argv, struct errmsg *em)
{
	struct errmsg why = { .text = "" };
	memset(o, 0, sizeof(*o));
	for (size_t i = 0; i < FLAGS_LEN; i++) {
		if (flags[i].fallback)
			ASSERT(set_flag(o, &flags[i], flags[i].fallback, &why));
	}
	for (int i = 1; i < argc; i++) {
		const char *name = argv[i], *value;
		const struct flag *f;
		size_t len;
		if (name[0] != '-') {
			errmsg_set(em, "'%s' is not a flag (see --help)", name);
			return OPTIONS_ERROR;
		}
		name += name[1] == '-' ? 2 : 1; /* as Go's flags: one dash or two */
		if (strcmp(name, "help") == 0 || strcmp(name, "h") == 0) {
			print_help();
			return OPTIONS_EXIT_OK;
		}
		if (strcmp(name, "version") == 0) {
			printf("holdfastd %s (etcd API %s)\n", HOLDFAST_VERSION, HOLDFAST_ETCD_VERSION);
			return OPTIONS_EXIT_OK;
		}
		len = strcspn(name, "=");
		f = find_flag(name, len);
		if (!f) {
			errmsg_set(em, "unknown flag '--%.*s' (see --help)", (int)len, name);
			return OPTIONS_ERROR;
		}
		value = name[len] == '=' ? name + len + 1 : i + 1 < argc ? argv[++i] : NULL;
		if (!value) {
			errmsg_set(em, "--%s needs a value", f->name);
			return OPTIONS_ERROR;
		}
		if (!set_flag(o, f, value, &why)) {
			errmsg_set(em, "--%s: %s", f->name, why.text);
			return OPTIONS_ERROR;
		}
	}
	return finish(o, em) ? OPTIONS_RUN : OPTIONS_ERROR;
}

void options_free(struct options *o)
{
	for (size_t i = 0; i < FLAGS_LEN; i++) {
		void *at = (char *)o + flags[i].at;
		if (flags[i].kind == FLAG_TEXT)
			free(*(char **)at);
		else if (flags[i].kind == FLAG_URLS)
			urls_free(at);
	}
	members_free(o);
	memset(o, 0, sizeof(*o));
}
