/* options.c: one table of flags; everything else follows from it, --help too. Who else has flags to say adds a row.
 *
 * How values are read is in options_values.c, for flags with a form of their own in options_own.c and options_members.c, for TLS's in options_tls.c.
 * Flags come from three places (the command line here, options_env.c, options_yaml.c), all through options_set(). */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "options_internal.h"
#include "version.h"

/* FLAG_BOOL: --flag or --flag=false; as in Go, no value follows as a word of its own. */
/* FLAG_PATH: a text that may be empty, which is none. */
enum flag_kind { FLAG_TEXT, FLAG_PATH, FLAG_URLS, FLAG_NUMBER, FLAG_MS, FLAG_DURATION, FLAG_BOOL, FLAG_OWN };

struct flag {
	const char *name;
	enum flag_kind kind;
	size_t at; /* offset in struct options */
	uint64_t min, max;
	const char *fallback; /* default, in the flag's own form; NULL: computed */
	const char *help;
	bool (*set)(struct options *o, const char *value, struct errmsg *em); /* FLAG_OWN */
};

#define AT(field) offsetof(struct options, field)
static const struct flag flags[] = {
	{ "name", FLAG_TEXT, AT(name), 0, 0, "default", "name of this member", NULL },
	{ "data-dir", FLAG_TEXT, AT(data_dir), 0, 0, NULL, "directory for the data (default NAME.holdfast)", NULL },
	{ "listen-client-urls", FLAG_URLS, AT(listen_client), 0, 0, "http://127.0.0.1:2379", "where clients are served", NULL },
	{ "advertise-client-urls", FLAG_URLS, AT(advertise_client), 0, 0, NULL, "client URLs told to others (default: where clients are served)", NULL },
	{ "listen-peer-urls", FLAG_URLS, AT(listen_peer), 0, 0, "http://127.0.0.1:2380", "where other members are served", NULL },
	{ "initial-advertise-peer-urls", FLAG_URLS, AT(initial_advertise_peer), 0, 0, NULL, "this member's peer URLs (default: --listen-peer-urls)", NULL },
	{ "initial-cluster", FLAG_OWN, 0, 0, 0, NULL, "NAME=PEER-URL,... of all members of a new cell (default: this one alone)", own_cluster },
	{ "initial-cluster-state", FLAG_OWN, 0, 0, 0, "new", "'new' or 'existing'", own_state },
	{ "initial-cluster-token", FLAG_TEXT, AT(initial_cluster_token), 0, 0, "etcd-cluster", "sets cells with equal addresses apart", NULL },
	{ "heartbeat-interval", FLAG_MS, AT(heartbeat_interval_ms), 5, 10000, "100", "ms between a leader's heartbeats", NULL },
	{ "election-timeout", FLAG_MS, AT(election_timeout_ms), 50, 50000, "1000", "ms of silence after which a leader is replaced", NULL },
	{ "snapshot-count", FLAG_NUMBER, AT(snapshot_count), 1, UINT64_MAX, "100000", "log entries between snapshots", NULL },
	{ "max-txn-ops", FLAG_NUMBER, AT(max_txn_ops), 1, 1000000, "128", "operations in one transaction, at the most", NULL },
	{ "max-request-bytes", FLAG_NUMBER, AT(max_request_bytes), 1024, 64U << 20, "1572864", "bytes of one request, at the most", NULL },
	{ "quota-backend-bytes", FLAG_NUMBER, AT(quota_backend_bytes), 0, UINT64_MAX, "0", "memory for keys and values; above it what grows is refused (0: 2 GiB)", NULL },
	{ "quota-auto-clear", FLAG_BOOL, AT(quota_auto_clear), 0, 0, "true", "the NOSPACE alarm goes by itself once there is room again", NULL },
	{ "corrupt-check-time", FLAG_DURATION, AT(corrupt_check_ms), 0, 86400000, "5m", "between two comparisons of the replicas' states (0: never)", NULL },
	{ "experimental-corrupt-check-time", FLAG_DURATION, AT(corrupt_check_ms), 0, 86400000, NULL, "the same", NULL },
	{ "experimental-initial-corrupt-check", FLAG_BOOL, AT(initial_corrupt_check), 0, 0, "true", "compare them too when a replica starts and when a leader begins", NULL },
	{ "auto-compaction-mode", FLAG_OWN, 0, 0, 0, "periodic", "'periodic' or 'revision'", own_compaction_mode },
	{ "auto-compaction-retention", FLAG_OWN, 0, 0, 0, NULL, "history kept: a duration (or hours), or a number of revisions; 0: all of it (default 5m, all of it by revisions)", own_retention },
	{ "max-concurrent-streams", FLAG_NUMBER, AT(max_concurrent_streams), 1, UINT32_MAX, "4294967295", "streams one connection may have open", NULL },
	{ "grpc-keepalive-min-time", FLAG_DURATION, AT(grpc_keepalive_min_time_ms), 0, 86400000, "5s", "shortest time between a client's pings", NULL },
	{ "grpc-keepalive-interval", FLAG_DURATION, AT(grpc_keepalive_interval_ms), 0, 86400000, "2h", "time after which a quiet client is pinged (0: never)", NULL },
	{ "grpc-keepalive-timeout", FLAG_DURATION, AT(grpc_keepalive_timeout_ms), 0, 86400000, "20s", "time for its answer", NULL },
	{ "lock-metrics-prefix", FLAG_OWN, 0, 0, 0, NULL, "beginnings of locks' names whose metrics are kept apart, with commas between them (default: the first segments)", own_lock_prefixes },
	{ "max-value-bytes", FLAG_NUMBER, AT(max_value_bytes), 0, 64U << 20, "0", "bytes of one value, at the most (0: as much as a request may have)", NULL },
	{ "snapshot-catchup-entries", FLAG_NUMBER, AT(snapshot_catchup_entries), 1, UINT64_MAX, "10000", "log entries kept behind a snapshot for slow followers", NULL },
	{ "experimental-snapshot-catchup-entries", FLAG_NUMBER, AT(snapshot_catchup_entries), 1, UINT64_MAX, NULL, "the same", NULL },
	{ "watch-progress-notify-interval", FLAG_DURATION, AT(watch_progress_ms), 100, 86400000, "10m", "between progress notices to idle watchers", NULL },
	{ "experimental-watch-progress-notify-interval", FLAG_DURATION, AT(watch_progress_ms), 100, 86400000, NULL, "the same", NULL },
	{ "metrics", FLAG_OWN, 0, 0, 0, "basic", "'basic', or 'extensive': how long calls take, too", own_metrics },
	{ "warning-apply-duration", FLAG_DURATION, AT(warning_apply_ms), 0, 86400000, "100ms", "a turn of the core that takes longer is counted and logged (0: never)", NULL },
	{ "experimental-warning-apply-duration", FLAG_DURATION, AT(warning_apply_ms), 0, 86400000, NULL, "the same", NULL },
	{ "listen-metrics-urls", FLAG_URLS, AT(listen_metrics), 0, 0, NULL, "where health and metrics alone are served, beside the client URLs", NULL },
	{ "listen-client-http-urls", FLAG_URLS, AT(listen_client_http), 0, 0, NULL, "where HTTP alone is served; then the client URLs serve gRPC alone", NULL },
	{ "enable-grpc-gateway", FLAG_BOOL, AT(enable_grpc_gateway), 0, 0, "true", "serve the API as JSON too", NULL },
	{ "cors", FLAG_OWN, 0, 0, 0, "*", "origins of web pages that may call, with commas between them", own_origins },
	{ "host-whitelist", FLAG_OWN, 0, 0, 0, "*", "names that plain HTTP requests may call this replica", own_hosts },
	{ "cert-file", FLAG_PATH, AT(client_tls.cert_file), 0, 0, NULL, "certificate for https:// client URLs (PEM, with its chain)", NULL },
	{ "key-file", FLAG_PATH, AT(client_tls.key_file), 0, 0, NULL, "its key", NULL },
	{ "client-cert-auth", FLAG_BOOL, AT(client_tls.cert_auth), 0, 0, NULL, "clients must have a certificate of --trusted-ca-file's", NULL },
	{ "trusted-ca-file", FLAG_PATH, AT(client_tls.trusted_ca_file), 0, 0, NULL, "CAs for clients' certificates, which are then asked for", NULL },
	{ "client-crl-file", FLAG_PATH, AT(client_tls.crl_file), 0, 0, NULL, "clients' certificates that were revoked (PEM or DER)", NULL },
	{ "client-cert-allowed-hostname", FLAG_PATH, AT(client_tls.allowed_hostname), 0, 0, NULL, "host names of which clients' certificates must cover one", NULL },
	{ "auto-tls", FLAG_BOOL, AT(client_tls.auto_tls), 0, 0, NULL, "make a certificate for https:// client URLs", NULL },
	{ "peer-cert-file", FLAG_PATH, AT(peer_tls.cert_file), 0, 0, NULL, "certificate for https:// peer URLs, shown to peers both ways", NULL },
	{ "peer-key-file", FLAG_PATH, AT(peer_tls.key_file), 0, 0, NULL, "its key", NULL },
	{ "peer-client-cert-auth", FLAG_BOOL, AT(peer_tls.cert_auth), 0, 0, NULL, "peers must have a certificate of --peer-trusted-ca-file's", NULL },
	{ "peer-trusted-ca-file", FLAG_PATH, AT(peer_tls.trusted_ca_file), 0, 0, NULL, "CAs for peers' certificates, both ways", NULL },
	{ "peer-crl-file", FLAG_PATH, AT(peer_tls.crl_file), 0, 0, NULL, "peers' certificates that were revoked (PEM or DER)", NULL },
	{ "peer-auto-tls", FLAG_BOOL, AT(peer_tls.auto_tls), 0, 0, NULL, "make a certificate for https:// peer URLs, and believe any peer's", NULL },
	{ "peer-cert-allowed-cn", FLAG_PATH, AT(peer_tls.allowed_cn), 0, 0, NULL, "common names of which peers' certificates must have one", NULL },
	{ "peer-cert-allowed-hostname", FLAG_PATH, AT(peer_tls.allowed_hostname), 0, 0, NULL, "host names of which they must cover one", NULL },
	{ "cipher-suites", FLAG_PATH, AT(cipher_suites), 0, 0, NULL, "TLS_...,TLS_... (default: OpenSSL's choice)", NULL },
	{ "tls-min-version", FLAG_OWN, 0, 0, 0, "TLS1.2", "TLS1.2 or TLS1.3", own_tls_min },
	{ "tls-max-version", FLAG_OWN, 0, 0, 0, NULL, "TLS1.2 or TLS1.3 (default: the highest)", own_tls_max },
	{ "self-signed-cert-validity", FLAG_NUMBER, AT(self_signed_years), 1, 100, "1", "years that self-made certificates are valid; they are renewed before", NULL },
	{ "auth-token", FLAG_TEXT, AT(auth_token), 0, 0, "simple", "'simple', or 'jwt,pub-key=FILE,priv-key=FILE,sign-method=RS256,ttl=5m'", NULL },
	{ "auth-token-ttl", FLAG_NUMBER, AT(auth_token_ttl_s), 1, 4000000, "300", "seconds that a simple token lives after it was last used", NULL },
	{ "bcrypt-cost", FLAG_NUMBER, AT(bcrypt_cost), 4, 31, "10", "of passwords that are set: one more takes twice as long to try", NULL },
	{ "audit-log", FLAG_PATH, AT(audit_log), 0, 0, NULL, "file for a line of JSON for every act on locks, leases, users and members", NULL },
	{ "etcd-version", FLAG_OWN, 0, 0, 0, HOLDFAST_ETCD_VERSION, "version of etcd that clients are told", own_version },
	{ "logger", FLAG_OWN, 0, 0, 0, "text", "'text', or 'zap': a JSON object a line", own_logger },
	{ "log-outputs", FLAG_OWN, 0, 0, 0, "default", "'default' (stderr), 'stderr', 'stdout' or files, with commas between them", own_outputs },
	{ "log-level", FLAG_OWN, 0, 0, 0, "info", "debug, info, warn or error", own_level },
	{ "debug", FLAG_BOOL, AT(debug), 0, 0, "false", "as --log-level debug", NULL },
	{ "config-file", FLAG_TEXT, AT(config_file), 0, 0, NULL, "YAML with the other flags' names; flags and environment are then not looked at", NULL },
};
#define FLAGS_LEN (sizeof(flags) / sizeof(flags[0]))
_Static_assert(FLAGS_LEN <= OPTIONS_FLAGS_MAX, "room to remember which were given");

static const struct flag *find_flag(const char *name, size_t len)
{
	for (size_t i = 0; i < FLAGS_LEN; i++) {
		if (strlen(flags[i].name) == len && memcmp(flags[i].name, name, len) == 0)
			return &flags[i];
	}
	return NULL;
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
		/* fall through */
	case FLAG_PATH:
		free(*(char **)at);
		*(char **)at = *value ? options_copy(value, strlen(value)) : NULL;
		return true;
	case FLAG_URLS:
		return value_urls(at, value, em);
	case FLAG_NUMBER:
	case FLAG_MS:
		return value_number(at, value, f->min, f->max, em);
	case FLAG_DURATION:
		return value_duration(at, value, f->min, f->max, em);
	case FLAG_BOOL:
		return value_bool(at, value, em);
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

static bool finish(struct options *o, struct errmsg *em)
{
	if (!options_finish_compaction(o, em) || !options_finish_members(o, em) || !options_addresses_differ(o, em) || !options_finish_tls(o, em))
		return false;
	if (o->election_timeout_ms < 5 * o->heartbeat_interval_ms) {
		errmsg_set(em, "--election-timeout (%llu) must be at least five times --heartbeat-interval (%llu)",
			   (unsigned long long)o->election_timeout_ms, (unsigned long long)o->heartbeat_interval_ms);
		return false;
	}
	if (!o->quota_backend_bytes)
		o->quota_backend_bytes = UINT64_C(2) << 30;
	if (o->debug)
		o->log_level = LOG_DEBUG;
	return true;
}

/* ---- where they come from ---- */

void options_warn(struct options *o, const char *message, const char *flag, size_t flag_len, const char *detail)
{
	if (o->warnings_len == OPTIONS_WARNINGS_MAX)
		return;
	o->warnings[o->warnings_len++] = (struct options_warning){ message, options_copy(flag, flag_len), options_copy(detail, strlen(detail)) };
}

enum options_known options_know(const char *name, size_t len, size_t *ret_index)
{
	const struct flag *f = find_flag(name, len);
	if (f) {
		*ret_index = (size_t)(f - flags);
		return f->kind == FLAG_BOOL ? OPTIONS_SWITCH : OPTIONS_VALUE;
	}
	*ret_index = SIZE_MAX;
	return options_ignored_know(name, len);
}

bool options_set(struct options *o, const char *name, size_t len, const char *value, struct errmsg *em)
{
	const struct flag *f = find_flag(name, len);
	return f ? set_flag(o, f, value, em) : options_ignored_set(o, name, len, value, em);
}

const char *options_name(size_t i)
{
	return i < FLAGS_LEN ? flags[i].name : NULL;
}

struct word {
	const char *name, *value;
	size_t len;
};

/* One flag at argv[*at]; *at moves to its last word. */
static bool next_word(int argc, char **argv, int *at, struct word *ret, struct errmsg *em)
{
	const char *name = argv[*at];
	enum options_known known;
	size_t index;
	if (name[0] != '-') {
		errmsg_set(em, "'%s' is not a flag (see --help)", name);
		return false;
	}
	name += name[1] == '-' ? 2 : 1; /* as Go's flags: one dash or two */
	*ret = (struct word){ .name = name, .len = strcspn(name, "=") };
	if (strcmp(name, "help") == 0 || strcmp(name, "h") == 0 || strcmp(name, "version") == 0)
		return true;
	known = options_know(name, ret->len, &index);
	if (known == OPTIONS_UNKNOWN) {
		errmsg_set(em, "unknown flag '--%.*s' (see --help)", (int)ret->len, name);
		return false;
	}
	if (name[ret->len] == '=')
		ret->value = name + ret->len + 1;
	else if (known == OPTIONS_SWITCH)
		ret->value = "true";
	else if (*at + 1 < argc)
		ret->value = argv[++*at];
	if (!ret->value)
		errmsg_set(em, "--%.*s needs a value", (int)ret->len, name);
	return ret->value != NULL;
}

static enum options_result parse_words(struct options *o, int argc, char **argv, bool seen[OPTIONS_FLAGS_MAX], struct errmsg *em)
{
	struct errmsg why = { .text = "" };
	for (int i = 1; i < argc; i++) {
		struct word w;
		size_t index;
		if (!next_word(argc, argv, &i, &w, em))
			return OPTIONS_ERROR;
		if (!w.value && w.name[0] == 'h') {
			print_help();
			return OPTIONS_EXIT_OK;
		}
		if (!w.value) {
			printf("holdfastd %s (etcd API %s)\n", HOLDFAST_VERSION, o->etcd_version);
			return OPTIONS_EXIT_OK;
		}
		if (!options_set(o, w.name, w.len, w.value, &why)) {
			errmsg_set(em, "--%.*s: %s", (int)w.len, w.name, why.text);
			return OPTIONS_ERROR;
		}
		options_know(w.name, w.len, &index);
		if (index < OPTIONS_FLAGS_MAX)
			seen[index] = true;
	}
	return OPTIONS_RUN;
}

static void set_defaults(struct options *o)
{
	struct errmsg why = { .text = "" };
	memset(o, 0, sizeof(*o));
	for (size_t i = 0; i < FLAGS_LEN; i++) {
		if (flags[i].fallback)
			ASSERT(set_flag(o, &flags[i], flags[i].fallback, &why));
	}
}

/* The file is all that counts: what was read before is forgotten. */
static bool parse_file(struct options *o, const char *path, struct errmsg *em)
{
	char *own = options_copy(path, strlen(path));
	bool ok;
	options_free(o);
	set_defaults(o);
	o->config_file = own;
	ok = options_from_yaml(o, own, em);
	return ok;
}

enum options_result options_parse_env(struct options *o, int argc, char **argv, char **env, struct errmsg *em)
{
	bool seen[OPTIONS_FLAGS_MAX] = { false };
	const char *file;
	enum options_result r;
	set_defaults(o);
	r = parse_words(o, argc, argv, seen, em);
	if (r != OPTIONS_RUN)
		return r;
	file = o->config_file ? o->config_file : options_env_value(env, "config-file");
	if (file ? !parse_file(o, file, em) : !options_from_env(o, env, seen, em))
		return OPTIONS_ERROR;
	return finish(o, em) ? OPTIONS_RUN : OPTIONS_ERROR;
}

enum options_result options_parse(struct options *o, int argc, char **argv, struct errmsg *em)
{
	char *none[] = { NULL };
	return options_parse_env(o, argc, argv, none, em);
}

void options_free(struct options *o)
{
	for (size_t i = 0; i < FLAGS_LEN; i++) {
		void *at = (char *)o + flags[i].at;
		if (flags[i].kind == FLAG_TEXT || flags[i].kind == FLAG_PATH) {
			free(*(char **)at);
			*(char **)at = NULL;
		} else if (flags[i].kind == FLAG_URLS) {
			value_urls_free(at);
		}
	}
	options_members_free(o);
	value_list_free(&o->cors);
	value_list_free(&o->host_whitelist);
	value_list_free(&o->lock_metrics_prefixes);
	value_list_free(&o->log_outputs);
	free(o->auto_compaction_mode);
	free(o->auto_compaction_retention);
	free(o->etcd_version);
	while (o->warnings_len) {
		struct options_warning *w = &o->warnings[--o->warnings_len];
		free(w->flag);
		free(w->detail);
	}
	memset(o, 0, sizeof(*o));
}
