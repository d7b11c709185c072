/* options.h: how a replica is told what to do. etcd's flags, in both forms (--flag value, --flag=value), as environment (ETCD_FLAG, HOLDFAST_FLAG), or
 * all in one file of YAML (--config-file). docs/migrating-from-etcd.md has the table for people. */
#ifndef HOLDFAST_MAIN_OPTIONS_H
#define HOLDFAST_MAIN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errors.h"
#include "log/log.h"

#define OPTIONS_URLS_MAX 16
#define OPTIONS_MEMBERS_MAX 16
#define OPTIONS_WARNINGS_MAX 64
#define OPTIONS_OUTPUTS_MAX LOG_OUTPUTS_MAX

struct url_list {
	char *urls[OPTIONS_URLS_MAX]; /* owned, e.g. "http://127.0.0.1:2379" */
	size_t len;
};

struct initial_member {
	char *name;
	struct url_list peer_urls;
};

/* Owned texts, such as origins or paths. */
struct text_list {
	char *items[OPTIONS_URLS_MAX];
	size_t len;
};

/* Taken, but not as the giver may think. Told when there is a log. */
struct options_warning {
	const char *message;
	char *flag, *detail;
};

/* --cert-file ... and --peer-cert-file ...; NULL: not given. */
struct tls_flags {
	char *cert_file, *key_file, *trusted_ca_file, *crl_file, *allowed_cn, *allowed_hostname;
	bool cert_auth, auto_tls;
};

struct options {
	char *name, *data_dir, *initial_cluster_token;
	struct url_list listen_client, advertise_client, listen_peer, initial_advertise_peer;
	struct initial_member members[OPTIONS_MEMBERS_MAX];
	size_t members_len;
	bool existing; /* --initial-cluster-state existing */
	uint64_t heartbeat_interval_ms, election_timeout_ms, snapshot_count;
	uint64_t max_txn_ops, max_request_bytes, quota_backend_bytes, max_concurrent_streams;
	uint64_t auto_compaction_ms;        /* 0: off */
	uint64_t auto_compaction_revisions; /* mode "revision"; 0: not that mode */
	uint64_t grpc_keepalive_min_time_ms, grpc_keepalive_interval_ms, grpc_keepalive_timeout_ms;
	char *auto_compaction_mode, *auto_compaction_retention; /* as given */
	enum log_level log_level;
	enum log_format log_format;
	struct text_list log_outputs; /* "stderr", "stdout" or a file's path */
	bool debug;
	struct text_list cors, host_whitelist; /* empty: everybody, any */
	struct url_list listen_metrics, listen_client_http;
	bool enable_grpc_gateway;
	struct tls_flags client_tls, peer_tls;
	char *cipher_suites;                  /* NULL: OpenSSL's choice */
	int tls_min_version, tls_max_version; /* OpenSSL's numbers; 0: 1.2, the highest */
	uint64_t self_signed_years;
	struct text_list lock_metrics_prefixes; /* empty: first segments of names */
	uint64_t max_value_bytes; /* 0: as a request may have */
	bool extensive_metrics;
	uint64_t warning_apply_ms; /* 0: never */
	uint64_t watch_progress_ms, snapshot_catchup_entries;
	char *auth_token;     /* "simple" or "jwt,..." */
	uint64_t auth_token_ttl_s, bcrypt_cost;
	char *audit_log;      /* NULL: none */
	uint64_t corrupt_check_ms; /* 0: never */
	bool initial_corrupt_check, quota_auto_clear;
	char *etcd_version;
	char *config_file; /* NULL: none */
	struct options_warning warnings[OPTIONS_WARNINGS_MAX];
	size_t warnings_len;
};

enum options_result { OPTIONS_RUN, OPTIONS_EXIT_OK /* --help, --version: printed */, OPTIONS_ERROR };

/* Fills *o (options_free it in any case). On OPTIONS_ERROR em has one clear line. Prints --help and --version to stdout. env: as environ. A flag goes before the
 * environment, HOLDFAST_ before ETCD_; a file, when there is one, is all that counts. As with etcd, a variable that a flag contradicts is an error. */
enum options_result options_parse_env(struct options *o, int argc, char **argv, char **env, struct errmsg *em);
enum options_result options_parse(struct options *o, int argc, char **argv, struct errmsg *em); /* with an empty environment */
void options_free(struct options *o);
bool options_any_tls(const struct url_list *l); /* one of them is https:// or unixs:// */

#endif
