/* metrics.c: figures in Prometheus' text format: of the process, of this replica's node, and of the gateway itself. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"
#include "node/node.h"

void metric_head(struct buf *out, const char *name, const char *type, const char *help)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_u64(struct buf *out, const char *name, const char *type, const char *help, uint64_t v)
{
	metric_head(out, name, type, help);
	buf_printf(out, "%s %" PRIu64 "\n", name, v);
}

void metric_gauge(struct buf *out, const char *name, const char *help, uint64_t v)
{
	put_u64(out, name, "gauge", help, v);
}

void metric_counter(struct buf *out, const char *name, const char *help, uint64_t v)
{
	put_u64(out, name, "counter", help, v);
}

/* ---- the process ---- */

static void write_cpu(struct buf *out)
{
	struct rusage u;
	if (getrusage(RUSAGE_SELF, &u) < 0)
		return;
	metric_head(out, "process_cpu_seconds_total", "counter", "User and system time that the process has used.");
	buf_printf(out, "process_cpu_seconds_total %.3f\n",
		   (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
}

static void write_memory(struct buf *out)
{
	unsigned long long total, resident;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	FILE *f = fopen("/proc/self/statm", "re");
	if (!f)
		return;
	if (fscanf(f, "%llu %llu", &total, &resident) == 2) {
		metric_gauge(out, "process_resident_memory_bytes", "Memory in use.", resident * page);
		metric_gauge(out, "process_virtual_memory_bytes", "Address space in use.", total * page);
		metric_head(out, "process_virtual_memory_max_bytes", "gauge", "Address space that the process may have.");
		buf_printf(out, "process_virtual_memory_max_bytes %s\n", "1.8446744073709552e+19");
	}
	fclose(f);
}

static void write_descriptors(struct buf *out)
{
	struct rlimit limit;
	uint64_t n = 0;
	DIR *d = opendir("/proc/self/fd");
	if (d) {
		while (readdir(d))
			n++;
		closedir(d);
		n = n > 3 ? n - 3 : 0; /* without ".", ".." and this directory's own */
		metric_gauge(out, "process_open_fds", "Descriptors in use.", n);
		metric_gauge(out, "os_fd_used", "Descriptors in use.", n);
	}
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		metric_gauge(out, "process_max_fds", "Descriptors that the process may have.", limit.rlim_cur);
		metric_gauge(out, "os_fd_limit", "Descriptors that the process may have.", limit.rlim_cur);
	}
}

/* The 22nd field of stat, in ticks since the machine started, and that start as /proc/stat has it. */
static bool read_start_time(double *ret)
{
	char line[1024], *at;
	unsigned long long ticks, boot = 0;
	FILE *f = fopen("/proc/self/stat", "re");
	bool ok = f && fgets(line, sizeof(line), f) && (at = strrchr(line, ')')) &&
		  sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &ticks) == 1;
	if (f)
		fclose(f);
	f = ok ? fopen("/proc/stat", "re") : NULL;
	while (f && fgets(line, sizeof(line), f) && sscanf(line, "btime %llu", &boot) != 1)
		;
	if (f)
		fclose(f);
	if (!boot)
		return false;
	*ret = (double)boot + (double)ticks / (double)sysconf(_SC_CLK_TCK);
	return true;
}

static void write_process(struct buf *out)
{
	double start;
	write_cpu(out);
	write_memory(out);
	write_descriptors(out);
	if (read_start_time(&start)) {
		metric_head(out, "process_start_time_seconds", "gauge", "When the process started, in seconds since 1970.");
		buf_printf(out, "process_start_time_seconds %.2f\n", start);
	}
}

/* ---- the node ---- */

static void write_node(struct buf *out, struct node *n)
{
	struct core_status s;
	node_status(n, &s);
	metric_gauge(out, "holdfast_serving", "1 when this replica knows a leader and has caught up.", s.serving);
	metric_gauge(out, "holdfast_recovering", "1 while this replica fetches from its peers what a damaged disk has lost: it neither votes nor serves.", s.recovering);
	metric_gauge(out, "holdfast_is_leader", "1 when this replica leads its cell.", s.role == RAFT_LEADER);
	metric_gauge(out, "holdfast_has_leader", "1 when this replica knows a leader.", s.leader != 0);
	metric_gauge(out, "holdfast_raft_term", "The term that this replica is in.", s.term);
	metric_gauge(out, "holdfast_raft_commit_index", "Highest log position known to be on a quorum.", s.commit);
	metric_gauge(out, "holdfast_raft_applied_index", "Highest log position fed to the state machine.", s.applied);
	metric_gauge(out, "holdfast_raft_first_index", "First position that this replica's log keeps: what is before it is in a snapshot alone.", s.first);
	metric_gauge(out, "holdfast_raft_last_index", "Last position of this replica's log.", s.last);
	metric_gauge(out, "holdfast_raft_stable_index", "Last position of the log that is on this replica's disk.", s.stable);
	metric_gauge(out, "holdfast_revision", "The store's revision.", (uint64_t)s.revision);
	metric_gauge(out, "holdfast_leases", "Leases alive.", s.leases);
	metric_gauge(out, "holdfast_keys", "Keys in the store.", s.keys);
	metric_gauge(out, "holdfast_watchers", "Watches open on this replica.", s.watchers);
	metric_gauge(out, "holdfast_pending_calls", "Calls that wait for the log or for a quorum.", s.pending);
	metric_gauge(out, "holdfast_waiters", "Calls that wait for a lock or an election.", s.waiters);
	metric_gauge(out, "holdfast_sessions", "Sessions open in this cell.", s.open_sessions);
	metric_gauge(out, "holdfast_session_streams", "Streams of sessions on this replica.", s.session_streams);
	metric_gauge(out, "holdfast_cached_things", "Values and lists that clients may have cached, as this leader knows.", s.cached_things);
	metric_gauge(out, "holdfast_cached_pairs", "Pairs of a session and a thing that it may have cached.", s.cached_pairs);
	metric_counter(out, "holdfast_invalidations_total", "Invalidations that this leader has sent.", s.invalidations);
	metric_gauge(out, "holdfast_sessions_owing", "Sessions that have not acknowledged all invalidations.", s.sessions_owing);
	metric_gauge(out, "holdfast_queued_writes", "Writes that wait in front of this leader's log.", s.admit_queued);
	metric_gauge(out, "holdfast_gated_writes", "Writes that wait for such sessions.", s.gated);
	metric_head(out, "holdfast_oldest_invalidation_seconds", "gauge", "How long the oldest invalidation has not been acknowledged; 0: there is none.");
	buf_printf(out, "holdfast_oldest_invalidation_seconds %.3f\n", (double)s.oldest_owed_ms / 1000);
	metric_gauge(out, "holdfast_store_bytes", "Bytes that keys, values and their history take.", s.store_bytes);
}

/* ---- the gateway ---- */

static uint64_t list_len(const struct list *l)
{
	uint64_t n = 0;
	LIST_FOR_EACH(it, l)
		n++;
	return n;
}

static void write_requests(struct buf *out, const struct gateway *g)
{
	const char *name = "holdfast_gateway_requests_total";
	metric_head(out, name, "counter", "JSON requests that were answered, by method and status.");
	for (int i = 0; i < METHOD_COUNT; i++) {
		const struct method *m = method_by_id((enum method_id)i);
		for (int status = 0; status < STATUS_COUNT; status++) {
			if (g->requests[i][status])
				buf_printf(out, "%s{service=\"%s\",method=\"%s\",code=\"%s\"} %" PRIu64 "\n", name, m->service, m->name,
					   status_name((enum status_code)status), g->requests[i][status]);
		}
	}
}

static void write_gateway(struct buf *out, struct gateway *g)
{
	metric_gauge(out, "holdfast_gateway_connections", "HTTP/1.1 connections open.", atomic_load(&g->connections_len));
	metric_counter(out, "holdfast_gateway_connections_refused_total", "Connections refused because there were too many.",
		atomic_load(&g->refused_connections));
	metric_counter(out, "holdfast_gateway_stuck_connections_total", "Connections that were closed because the client did not take its reply.",
		atomic_load(&g->stuck_connections));
	metric_gauge(out, "holdfast_gateway_calls", "Calls and streams open.", list_len(&g->calls));
	metric_gauge(out, "holdfast_gateway_request_bytes", "Bytes of requests in memory.", g->input_bytes);
	write_requests(out, g);
}

void metrics_write(struct gateway *g, struct buf *out)
{
	write_process(out);
	write_node(out, g->config.node);
	metrics_write_calls(g, out);
	metrics_write_etcd(g, out);
	pages_write_metrics(g, out);
	write_gateway(out, g);
	if (g->config.metrics)
		g->config.metrics(g->config.metrics_ctx, out);
}
