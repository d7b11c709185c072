/* options_ignored.c: flags of etcd that have no meaning here. They are taken, so that a command line of etcd's does as it is, and a warning says what is true
 * instead; a value that asks for nothing else than what is done anyway is taken in silence. What would be dangerous to take and not do is refused. */
#include "options_internal.h"

#include <stdlib.h>
#include <string.h>

#include "options.h"

enum action {
	IGNORE, /* with a warning */
	REFUSE, /* any other value than the quiet one */
};

struct ignored {
	const char *name;
	bool is_switch;
	enum action action;
	const char *quiet; /* the value that changes nothing; NULL: each does */
	const char *instead;
};

static const struct ignored table[] = {
	{ "wal-dir", false, IGNORE, "", "the log is in --data-dir" },
	{ "max-snapshots", false, IGNORE, NULL, "the newest snapshot is kept" },
	{ "max-wals", false, IGNORE, NULL, "the log is kept in one file" },
	{ "initial-election-tick-advance", true, IGNORE, "true", "a replica alone leads at once, others wait for an election timeout" },
	{ "pre-vote", true, IGNORE, "true", "pre-vote is always on" },
	{ "strict-reconfig-check", true, IGNORE, "true", "changes that would cost the quorum are always refused" },
	{ "enable-v2", true, IGNORE, "false", "there is no v2 API" },
	{ "v2-deprecation", false, IGNORE, NULL, "there is no v2 API" },
	{ "experimental-enable-v2v3", false, IGNORE, "", "there is no v2 API" },
	{ "backend-bbolt-freelist-type", false, IGNORE, NULL, "the state is in memory" },
	{ "experimental-backend-bbolt-freelist-type", false, IGNORE, NULL, "the state is in memory" },
	{ "backend-batch-interval", false, IGNORE, NULL, "what waits is committed together, at once" },
	{ "backend-batch-limit", false, IGNORE, NULL, "what waits is committed together, at once" },
	{ "compaction-batch-limit", false, IGNORE, NULL, "compaction is cut by time" },
	{ "experimental-compaction-batch-limit", false, IGNORE, NULL, "compaction is cut by time" },
	{ "compaction-sleep-interval", false, IGNORE, NULL, "compaction is cut by time" },
	{ "experimental-compaction-sleep-interval", false, IGNORE, NULL, "compaction is cut by time" },
	{ "experimental-compact-hash-check-enabled", true, IGNORE, NULL, "checksums are checked whenever data is read" },
	{ "experimental-compact-hash-check-time", false, IGNORE, NULL, "checksums are checked whenever data is read" },
	{ "compact-hash-check-time", false, IGNORE, NULL, "checksums are checked whenever data is read" },
	{ "experimental-enable-lease-checkpoint", true, IGNORE, NULL, "a new leader gives every lease its whole TTL" },
	{ "experimental-enable-lease-checkpoint-persist", true, IGNORE, NULL, "a new leader gives every lease its whole TTL" },
	{ "experimental-warning-unary-request-duration", false, IGNORE, NULL, "durations are in /metrics" },
	{ "warning-unary-request-duration", false, IGNORE, NULL, "durations are in /metrics" },
	{ "experimental-txn-mode-write-with-shared-buffer", true, IGNORE, NULL, "the state is in memory" },
	{ "experimental-bootstrap-defrag-threshold-megabytes", false, IGNORE, NULL, "there is nothing to defragment" },
	{ "bootstrap-defrag-threshold-megabytes", false, IGNORE, NULL, "there is nothing to defragment" },
	{ "experimental-stop-grpc-service-on-defrag", true, IGNORE, NULL, "there is nothing to defragment" },
	{ "experimental-memory-mlock", true, IGNORE, "false", "use the unit's settings for memory" },
	{ "memory-mlock", true, IGNORE, "false", "use the unit's settings for memory" },
	{ "experimental-max-learners", false, IGNORE, NULL, "there may be as many learners as members" },
	{ "max-learners", false, IGNORE, NULL, "there may be as many learners as members" },
	{ "experimental-wait-cluster-ready-timeout", false, IGNORE, NULL, "/readyz says when a replica serves" },
	{ "experimental-enable-distributed-tracing", true, IGNORE, "false", "there is no tracing" },
	{ "experimental-distributed-tracing-address", false, IGNORE, NULL, "there is no tracing" },
	{ "experimental-distributed-tracing-service-name", false, IGNORE, NULL, "there is no tracing" },
	{ "experimental-distributed-tracing-instance-id", false, IGNORE, NULL, "there is no tracing" },
	{ "experimental-distributed-tracing-sampling-rate", false, IGNORE, NULL, "there is no tracing" },
	{ "enable-distributed-tracing", true, IGNORE, "false", "there is no tracing" },
	{ "distributed-tracing-address", false, IGNORE, NULL, "there is no tracing" },
	{ "distributed-tracing-service-name", false, IGNORE, NULL, "there is no tracing" },
	{ "distributed-tracing-instance-id", false, IGNORE, NULL, "there is no tracing" },
	{ "distributed-tracing-sampling-rate", false, IGNORE, NULL, "there is no tracing" },
	{ "feature-gates", false, IGNORE, "", "there are no features to be switched" },
	{ "socket-reuse-port", true, IGNORE, "false", "a port is one replica's" },
	{ "socket-reuse-address", true, IGNORE, "true", "addresses are always taken anew" },
	{ "experimental-peer-skip-client-san-verification", true, IGNORE, "true", "names in a peer's certificate are held against --peer-cert-allowed-cn and -hostname alone" },
	{ "peer-skip-client-san-verification", true, IGNORE, "true", "names in a peer's certificate are held against --peer-cert-allowed-cn and -hostname alone" },
	{ "client-cert-file", false, IGNORE, "", "JSON is answered by the replica itself, which is no client of its own" },
	{ "client-key-file", false, IGNORE, "", "JSON is answered by the replica itself, which is no client of its own" },
	{ "peer-client-cert-file", false, IGNORE, "", "peers are shown --peer-cert-file both ways" },
	{ "peer-client-key-file", false, IGNORE, "", "peers are shown --peer-cert-file both ways" },
	{ "experimental-set-member-localaddr", true, IGNORE, "false", "the system chooses the address that peers are called from" },
	{ "set-member-localaddr", true, IGNORE, "false", "the system chooses the address that peers are called from" },
	{ "experimental-downgrade-check-time", false, IGNORE, NULL, "a downgrade needs no preparation" },
	{ "downgrade-check-time", false, IGNORE, NULL, "a downgrade needs no preparation" },
	{ "raft-read-timeout", false, IGNORE, NULL, "a silent stream ends after 5 s" },
	{ "raft-write-timeout", false, IGNORE, NULL, "a silent stream ends after 5 s" },
	{ "enable-pprof", true, IGNORE, "false", "use perf or gdb" },
	{ "log-package-levels", false, IGNORE, "", "there is one level, --log-level" },
	{ "log-format", false, IGNORE, NULL, "--logger decides" },
	{ "enable-log-rotation", true, IGNORE, "false", "let logrotate copy and truncate" },
	{ "log-rotation-config-json", false, IGNORE, NULL, "let logrotate copy and truncate" },
	{ "discovery-fallback", false, IGNORE, NULL, "there is no discovery" },
	{ "discovery-proxy", false, IGNORE, "", "there is no discovery" },
	{ "discovery-srv-name", false, IGNORE, "", "there is no discovery" },
	{ "discovery-dial-timeout", false, IGNORE, NULL, "there is no discovery" },
	{ "discovery-request-timeout", false, IGNORE, NULL, "there is no discovery" },
	{ "discovery-keepalive-time", false, IGNORE, NULL, "there is no discovery" },
	{ "discovery-keepalive-timeout", false, IGNORE, NULL, "there is no discovery" },
	{ "discovery-insecure-transport", true, IGNORE, NULL, "there is no discovery" },
	{ "discovery-insecure-skip-tls-verify", true, IGNORE, "false", "there is no discovery" },
	{ "discovery-cert", false, IGNORE, "", "there is no discovery" },
	{ "discovery-key", false, IGNORE, "", "there is no discovery" },
	{ "discovery-cacert", false, IGNORE, "", "there is no discovery" },
	{ "discovery-user", false, IGNORE, "", "there is no discovery" },
	{ "discovery-password", false, IGNORE, "", "there is no discovery" },
	{ "proxy-failure-wait", false, IGNORE, NULL, "there is no v2 proxy" },
	{ "proxy-refresh-interval", false, IGNORE, NULL, "there is no v2 proxy" },
	{ "proxy-dial-timeout", false, IGNORE, NULL, "there is no v2 proxy" },
	{ "proxy-write-timeout", false, IGNORE, NULL, "there is no v2 proxy" },
	{ "proxy-read-timeout", false, IGNORE, NULL, "there is no v2 proxy" },
	/* Not doing these would make another cell than was asked for, or lose what is to be kept. */
	{ "discovery", false, REFUSE, "", "there is no discovery: name the members with --initial-cluster" },
	{ "discovery-srv", false, REFUSE, "", "there is no discovery: name the members with --initial-cluster" },
	{ "discovery-token", false, REFUSE, "", "there is no discovery: name the members with --initial-cluster" },
	{ "discovery-endpoints", false, REFUSE, "", "there is no discovery: name the members with --initial-cluster" },
	{ "proxy", false, REFUSE, "off", "there is no v2 proxy" },
	{ "force-new-cluster", true, REFUSE, "false", "a cell that has lost its quorum is restored from a backup" },
	{ "force-new-cluster-bump-amount", false, REFUSE, "0", "a cell that has lost its quorum is restored from a backup" },
	{ "unsafe-no-fsync", true, REFUSE, "false", "what is acknowledged is on the disk, always" },
};

static const struct ignored *find(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
			return &table[i];
	}
	return NULL;
}

enum options_known options_ignored_know(const char *name, size_t len)
{
	const struct ignored *f = find(name, len);
	if (!f)
		return OPTIONS_UNKNOWN;
	return f->is_switch ? OPTIONS_SWITCH : OPTIONS_VALUE;
}

bool options_ignored_set(struct options *o, const char *name, size_t len, const char *value, struct errmsg *em)
{
	const struct ignored *f = find(name, len);
	if (f->quiet && strcmp(value, f->quiet) == 0)
		return true;
	if (f->action == REFUSE) {
		errmsg_set(em, "%s", f->instead);
		return false;
	}
	options_warn(o, "a flag of etcd has no effect", name, len, f->instead);
	return true;
}
