/* options.h: the command line. etcd's flags, in both forms (--flag value, --flag=value). */
#ifndef HOLDFAST_MAIN_OPTIONS_H
#define HOLDFAST_MAIN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errors.h"
#include "log/log.h"

#define OPTIONS_URLS_MAX 16
#define OPTIONS_MEMBERS_MAX 16

struct url_list {
	char *urls[OPTIONS_URLS_MAX]; /* owned, e.g. "http://127.0.0.1:2379" */
	size_t len;
};

struct initial_member {
	char *name;
	struct url_list peer_urls;
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
	enum log_level log_level;
};

enum options_result { OPTIONS_RUN, OPTIONS_EXIT_OK /* --help, --version: printed */, OPTIONS_ERROR };

/* Fills *o (options_free it in any case). On OPTIONS_ERROR em has one clear line. Prints --help and --version to stdout. */
enum options_result options_parse(struct options *o, int argc, char **argv, struct errmsg *em);
void options_free(struct options *o);

#endif
