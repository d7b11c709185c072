/* metrics_etcd.c: figures under the names that etcd's dashboards and alerts ask for, where ours mean the same. Types are etcd's own, also where they are odd.
 *
 * There is one log, in one LMDB environment, whose commit is etcd's fsync of the WAL and its commit of the backend at once: both histograms have it. What has
 * no meaning here (Go's runtime, bbolt, v2, rafthttp's pipelines) is left out, rather than told as nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "internal.h"
#include "metrics.h"
#include "node/node.h"

/* ---- calls, as go-grpc-prometheus names them ---- */

static const char *type_of(const struct method *m)
{
	switch (m->stream) {
	case METHOD_UNARY:
		return "unary";
	case METHOD_SERVER_STREAM:
		return "server_stream";
	case METHOD_BIDI_STREAM:
		break;
	}
	return "bidi_stream";
}

static void per_method(struct buf *out, const char *name, const char *help, const uint64_t *of)
{
	metric_head(out, name, "counter", help);
	for (int i = 0; i < METHOD_COUNT; i++) {
		const struct method *m = method_by_id((enum method_id)i);
		buf_printf(out, "%s{grpc_method=\"%s\",grpc_service=\"%s\",grpc_type=\"%s\"} %" PRIu64 "\n", name, m->name, m->service, type_of(m), of[i]);
	}
}

static void handled(struct buf *out, const struct metrics *all)
{
	const char *name = "grpc_server_handled_total";
	metric_head(out, name, "counter", "Calls that ended, by method and status.");
	for (int i = 0; i < METHOD_COUNT; i++) {
		const struct method *m = method_by_id((enum method_id)i);
		for (int s = 0; s < STATUS_COUNT; s++) {
			if (all->handled[i][s] == 0 && s != STATUS_OK)
				continue;
			buf_printf(out, "%s{grpc_code=\"%s\",grpc_method=\"%s\",grpc_service=\"%s\",grpc_type=\"%s\"} %" PRIu64 "\n", name,
				   status_name((enum status_code)s), m->name, m->service, type_of(m), all->handled[i][s]);
		}
	}
}

static void histogram(struct buf *out, const char *name, const char *help, const struct metrics *all, enum metric_time t)
{
	uint64_t sum = 0;
	metric_head(out, name, "histogram", help);
	for (int i = 0; i < METRIC_BUCKETS; i++) {
		sum += all->times[t].buckets[i];
		buf_printf(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, (double)(1 << i) / 1000, sum);
	}
	/* Read at another moment than the buckets: never less than they are. */
	if (all->times[t].count > sum)
		sum = all->times[t].count;
	buf_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.6f\n%s_count %" PRIu64 "\n", name, sum, name,
		   (double)all->times[t].sum_us / 1e6, name, sum);
}

static void durations(struct buf *out, const struct metrics *all)
{
	const char *name = "grpc_server_handling_seconds";
	metric_head(out, name, "histogram", "How long calls took, by method.");
	for (int i = 0; i < METHOD_COUNT; i++) {
		const struct method *m = method_by_id((enum method_id)i);
		char labels[160];
		uint64_t sum = 0;
		snprintf(labels, sizeof(labels), "grpc_method=\"%s\",grpc_service=\"%s\",grpc_type=\"%s\"", m->name, m->service, type_of(m));
		for (int b = 0; b < METRIC_CALL_BUCKETS; b++) {
			sum += all->calls[i].buckets[b];
			buf_printf(out, "%s_bucket{%s,le=\"%g\"} %" PRIu64 "\n", name, labels, metric_call_bounds_s[b], sum);
		}
		sum += all->calls[i].buckets[METRIC_CALL_BUCKETS];
		buf_printf(out, "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n%s_sum{%s} %.6f\n%s_count{%s} %" PRIu64 "\n", name, labels, sum, name, labels,
			   (double)all->calls[i].sum_us / 1e6, name, labels, sum);
	}
}

static void client_versions(struct buf *out, const struct metrics *all)
{
	static const char *const types[] = { "unary", "stream" };
	const char *name = "etcd_server_client_requests_total", *version;
	metric_head(out, name, "counter", "Calls by the version of the API that clients say they speak.");
	for (unsigned i = 0; (version = metric_client_version(i)); i++) {
		for (size_t t = 0; t < 2; t++) {
			if (all->clients[i][t])
				buf_printf(out, "%s{client_api_version=\"%s\",type=\"%s\"} %" PRIu64 "\n", name, version, types[t], all->clients[i][t]);
		}
	}
}

/* Watches are bounded, and counted, by the core. */
static void refusals(struct buf *out, const struct metrics *all, uint64_t watches)
{
	static const struct {
		enum metric m;
		const char *what;
	} rows[] = { { METRIC_REFUSED_BYTES, "request_bytes" },
		     { METRIC_REFUSED_INFLIGHT, "in_flight" },
		     { METRIC_REFUSED_CALLS, "calls" },
		     { METRIC_REFUSED_OVERLOAD, "load" },
		     { METRIC_REFUSED_STREAM_BYTES, "stream_bytes" },
		     { METRIC_REFUSED_RANGES, "range_bytes" },
		     { METRIC_REFUSED_CONNECTIONS, "descriptors" } };
	const char *name = "holdfast_refused_total";
	metric_head(out, name, "counter", "What was refused because a limit was reached, by limit.");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		buf_printf(out, "%s{limit=\"%s\"} %" PRIu64 "\n", name, rows[i].what, all->counters[rows[i].m]);
	buf_printf(out, "%s{limit=\"watches\"} %" PRIu64 "\n", name, watches);
}

void metrics_write_calls(struct gateway *g, struct buf *out)
{
	struct core_status status;
	struct metrics *all = mem_alloc(sizeof(*all));
	metrics_sum(all);
	per_method(out, "grpc_server_started_total", "Calls that began, by method.", all->started);
	handled(out, all);
	per_method(out, "grpc_server_msg_received_total", "Messages of clients, by method.", all->received);
	per_method(out, "grpc_server_msg_sent_total", "Messages to clients, by method.", all->sent);
	metric_counter(out, "etcd_network_client_grpc_received_bytes_total", "Bytes of clients' messages.", all->counters[METRIC_CLIENT_BYTES_IN]);
	metric_counter(out, "etcd_network_client_grpc_sent_bytes_total", "Bytes of messages to clients.", all->counters[METRIC_CLIENT_BYTES_OUT]);
	histogram(out, "etcd_disk_wal_fsync_duration_seconds", "How long it took to make the log durable.", all, METRIC_TIME_LOG_COMMIT);
	histogram(out, "etcd_disk_backend_commit_duration_seconds", "The same: log and backend are one.", all, METRIC_TIME_LOG_COMMIT);
	histogram(out, "etcd_snap_db_save_total_duration_seconds", "How long it took to write a snapshot.", all, METRIC_TIME_SNAPSHOT_SAVE);
	histogram(out, "etcd_mvcc_hash_rev_duration_seconds", "How long it took to hash the keys up to a revision.", all, METRIC_TIME_HASH_REV);
	metric_counter(out, "holdfast_snapshot_received_chunks_total", "Chunks of snapshots that other replicas sent, written to disk.", all->counters[METRIC_SNAPSHOT_CHUNKS_IN]);
	metric_counter(out, "holdfast_snapshot_received_bytes_total", "Their bytes.", all->counters[METRIC_SNAPSHOT_BYTES_IN]);
	metric_counter(out, "holdfast_snapshot_sent_chunks_total", "Chunks of snapshots read from disk and sent to other replicas.", all->counters[METRIC_SNAPSHOT_CHUNKS_OUT]);
	metric_counter(out, "holdfast_snapshot_sent_bytes_total", "Their bytes.", all->counters[METRIC_SNAPSHOT_BYTES_OUT]);
	metric_gauge(out, "etcd_disk_wal_write_bytes_total", "Bytes of entries written to the log.", all->counters[METRIC_LOG_WRITE_BYTES]);
	metric_counter(out, "etcd_server_health_success", "Health checks that were answered with true.", all->counters[METRIC_HEALTH_OK]);
	metric_counter(out, "etcd_server_health_failures", "Health checks that were answered with false.", all->counters[METRIC_HEALTH_BAD]);
	metric_counter(out, "etcd_server_slow_apply_total", "Turns of the core that took longer than --warning-apply-duration.", all->counters[METRIC_SLOW_APPLY]);
	client_versions(out, all);
	if (g->config.extensive)
		durations(out, all);
	node_status(g->config.node, &status);
	refusals(out, all, status.watches_refused);
	free(all);
}

/* ---- the server ---- */

static void labelled(struct buf *out, const char *name, const char *help, const char *label, const char *value)
{
	metric_head(out, name, "gauge", help);
	buf_printf(out, "%s{%s=\"%s\"} 1\n", name, label, value ? value : "");
}

static void server(struct gateway *g, const struct core_status *s, struct buf *out)
{
	const char *version = g->config.server_version, *patch = strrchr(version, '.');
	char text[32];
	snprintf(text, sizeof(text), "%" PRIx64, g->config.member_id);
	labelled(out, "etcd_server_id", "The member's ID, in hexadecimal.", "server_id", text);
	labelled(out, "etcd_server_version", "The version of etcd that clients are told.", "server_version", version);
	snprintf(text, sizeof(text), "%.*s", patch ? (int)(patch - version) : (int)strlen(version), version);
	labelled(out, "etcd_cluster_version", "The version whose features all members have.", "cluster_version", text);
	metric_gauge(out, "etcd_server_has_leader", "1 when this member knows a leader.", s->leader != 0);
	metric_gauge(out, "etcd_server_is_leader", "1 when this member leads.", s->role == RAFT_LEADER);
	metric_gauge(out, "etcd_server_is_learner", "1 when this member does not vote.", s->learner);
	metric_counter(out, "etcd_server_leader_changes_seen_total", "Leaders that this member has heard of, one after another.", s->leader_changes);
	metric_gauge(out, "etcd_server_proposals_committed_total", "Highest log position known to be on a quorum.", s->commit);
	metric_gauge(out, "etcd_server_proposals_applied_total", "Highest log position fed to the state machine.", s->applied);
	metric_gauge(out, "etcd_server_proposals_pending", "Calls that wait for the log or for a quorum.", s->pending);
	metric_counter(out, "etcd_server_proposals_failed_total", "Writes that were not known to be done within their time.", s->proposals_failed);
	metric_counter(out, "etcd_server_read_indexes_failed_total", "Reads that were not confirmed within their time.", s->reads_failed);
	metric_counter(out, "etcd_server_slow_read_indexes_total", "Rounds of reads that took longer than half a second to be confirmed.", s->reads_slow);
	metric_counter(out, "etcd_server_heartbeat_send_failures_total", "Heartbeats that this member sent late as the leader: an overloaded machine.", s->heartbeats_late);
	metric_counter(out, "etcd_server_learner_promote_successes", "Learners that became voters while this member led.", s->promotions);
	metric_gauge(out, "etcd_server_snapshot_apply_in_progress_total", "1 while a snapshot is being received or put in force.", s->snapshot_under_way);
	metric_gauge(out, "etcd_server_quota_backend_bytes", "The quota.", g->config.quota_bytes);
}

static void store(const struct core_status *s, struct buf *out)
{
	const struct kv_counts *n = &s->counts;
	metric_counter(out, "etcd_mvcc_put_total", "Puts applied.", n->puts);
	metric_counter(out, "etcd_mvcc_delete_total", "Deletions applied.", n->deletes);
	metric_counter(out, "etcd_mvcc_range_total", "Ranges answered.", n->ranges);
	metric_counter(out, "etcd_mvcc_txn_total", "Transactions carried out.", n->txns);
	metric_gauge(out, "etcd_mvcc_db_total_size_in_bytes", "Bytes of keys, values and their history.", s->store_bytes);
	metric_gauge(out, "etcd_mvcc_db_total_size_in_use_in_bytes", "The same: what is freed is free.", s->store_bytes);
	metric_counter(out, "etcd_debugging_mvcc_put_total", "Puts applied.", n->puts);
	metric_counter(out, "etcd_debugging_mvcc_delete_total", "Deletions applied.", n->deletes);
	metric_counter(out, "etcd_debugging_mvcc_range_total", "Ranges answered.", n->ranges);
	metric_counter(out, "etcd_debugging_mvcc_txn_total", "Transactions carried out.", n->txns);
	metric_gauge(out, "etcd_debugging_mvcc_db_total_size_in_bytes", "Bytes of keys, values and their history.", s->store_bytes);
	metric_gauge(out, "etcd_debugging_mvcc_total_put_size_in_bytes", "Bytes of keys and values that were put.", n->put_bytes);
	metric_gauge(out, "etcd_debugging_mvcc_keys_total", "Keys in the store.", s->keys);
	metric_gauge(out, "etcd_debugging_mvcc_current_revision", "The store's revision.", (uint64_t)s->revision);
	metric_gauge(out, "etcd_debugging_mvcc_compact_revision", "History below it is gone.", (uint64_t)s->compact_revision);
	metric_counter(out, "etcd_debugging_mvcc_db_compaction_keys_total", "Events that compaction took away.", n->compacted);
	metric_gauge(out, "etcd_debugging_mvcc_watch_stream_total", "Watch streams open on this member.", s->watch_streams);
	metric_gauge(out, "etcd_debugging_mvcc_watcher_total", "Watches open on this member.", s->watchers);
	metric_gauge(out, "etcd_debugging_mvcc_slow_watcher_total", "Watches that have not been told everything.", s->watchers_behind);
	metric_counter(out, "etcd_debugging_mvcc_events_total", "Events told to watches of this member.", s->watch_events);
}

static void leases(const struct core_status *s, struct buf *out)
{
	metric_counter(out, "etcd_debugging_lease_granted_total", "Leases granted.", s->counts.leases_granted);
	metric_counter(out, "etcd_debugging_lease_revoked_total", "Leases that ended.", s->counts.leases_ended);
	metric_counter(out, "etcd_debugging_lease_renewed_total", "Keep-alives that this member answered as the leader.", s->leases_renewed);
	metric_counter(out, "etcd_debugging_server_lease_expired_total", "Leases that ended because their time was up.", s->counts.leases_expired);
}

static void lease_ttls(const struct core_status *s, struct buf *out)
{
	const char *name = "etcd_debugging_lease_ttl_total";
	const struct kv_counts *n = &s->counts;
	uint64_t sum = 0;
	metric_head(out, name, "histogram", "Leases granted, by their TTL.");
	for (int i = 0; i < KV_TTL_BUCKETS; i++) {
		sum += n->ttls[i];
		buf_printf(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, (double)(1 << i), sum);
	}
	buf_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %" PRIu64 "\n%s_count %" PRIu64 "\n", name, n->leases_granted, name, n->ttl_sum_s, name, n->leases_granted);
}

void metrics_write_etcd(struct gateway *g, struct buf *out)
{
	struct core_status s;
	node_status(g->config.node, &s);
	server(g, &s, out);
	store(&s, out);
	leases(&s, out);
	lease_ttls(&s, out);
	metric_gauge(out, "etcd_debugging_auth_revision", "How often users and roles have changed.", s.auth_revision);
	metric_counter(out, "holdfast_watches_lost_total", "Watches that were cancelled because history was compacted before they had it.", s.watch_lost);
	metric_counter(out, "holdfast_snapshots_installed_total", "Snapshots received from a leader and put in force.", s.snapshots_installed);
	metric_counter(out, "holdfast_snapshots_sent_total", "Snapshots that a follower has taken from this leader.", s.snapshots_sent);
	metric_counter(out, "holdfast_snapshots_not_sent_total", "Snapshots for a follower that were given up.", s.snapshots_not_sent);
	metric_gauge(out, "holdfast_disk_low", "1 when the disk is below its reserve and what grows is refused.", s.disk_low);
	metric_gauge(out, "holdfast_quota_near", "1 when the store is at four fifths of its quota or above.", s.quota_high);
	metric_gauge(out, "holdfast_alarms", "Alarms that are up.", s.alarms);
	metric_gauge(out, "holdfast_apply_backlog_entries", "Entries committed and not applied.", s.log_pending);
}
