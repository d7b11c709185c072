/* peers_figures.c: what went to and came from each peer, under the names that etcd has for it. Peers that have left the set are forgotten with their links. */
#include <inttypes.h>
#include <stddef.h>

#include "base/mem.h"
#include "internal.h"

struct row {
	member_id id;
	bool open;
	struct link_figures figures;
	uint64_t sends_failed; /* streams to it that broke, and what its outbox dropped */
};

static size_t copy_rows(struct peers *p, struct row ret[PEERS_MAX])
{
	size_t len = 0;
	pthread_mutex_lock(&p->mu);
	LIST_FOR_EACH(n, &p->links) {
		const struct link *l = CONTAINER_OF(n, struct link, node);
		ret[len++] = (struct row){ l->id, l->open, l->figures, l->figures.broke + l->outbox.dropped };
	}
	pthread_mutex_unlock(&p->mu);
	return len;
}

static void per_peer(struct buf *out, const struct row *rows, size_t len, const char *name, const char *label, size_t offset, const char *help)
{
	if (len == 0)
		return;
	buf_printf(out, "# HELP %s %s\n# TYPE %s counter\n", name, help, name);
	for (size_t i = 0; i < len; i++)
		buf_printf(out, "%s{%s=\"%" PRIx64 "\"} %" PRIu64 "\n", name, label, rows[i].id,
			   *(const uint64_t *)(const void *)((const char *)&rows[i] + offset));
}

#define PER_PEER(what, label, field, help) per_peer(out, rows, len, "etcd_network_peer_" what "_total", label, offsetof(struct row, field), help)

static void write_round_trips(const struct row *rows, size_t len, struct buf *out)
{
	static const char name[] = "etcd_network_peer_round_trip_time_seconds";
	buf_printf(out, "# HELP %s How long a peer takes to answer nothing.\n# TYPE %s histogram\n", name, name);
	for (size_t i = 0; i < len; i++) {
		const struct link_figures *f = &rows[i].figures;
		uint64_t sum = 0;
		for (size_t j = 0; j < ROUND_TRIP_BUCKETS; j++) {
			sum += f->answers_in[j];
			buf_printf(out, "%s_bucket{To=\"%" PRIx64 "\",le=\"%g\"} %" PRIu64 "\n", name, rows[i].id, (double)(1 << j) / 10000, sum);
		}
		buf_printf(out, "%s_bucket{To=\"%" PRIx64 "\",le=\"+Inf\"} %" PRIu64 "\n%s_sum{To=\"%" PRIx64 "\"} %.6f\n%s_count{To=\"%" PRIx64 "\"} %" PRIu64 "\n", name,
			   rows[i].id, f->answers, name, rows[i].id, (double)f->answers_us / 1e6, name, rows[i].id, f->answers);
	}
}

void peers_write_metrics(struct peers *p, struct buf *out)
{
	struct row rows[PEERS_MAX];
	size_t len = copy_rows(p, rows);
	PER_PEER("sent_bytes", "To", figures.sent_bytes, "Bytes of messages to a peer.");
	PER_PEER("received_bytes", "From", figures.received_bytes, "Bytes of messages of a peer.");
	PER_PEER("sent_failures", "To", sends_failed, "Streams to a peer that broke, and messages to it that were dropped.");
	PER_PEER("received_failures", "From", figures.receives_failed, "Streams of a peer that broke, or had no sound frames in them.");
	if (len == 0)
		return;
	write_round_trips(rows, len, out);
	buf_printf(out, "# HELP etcd_network_disconnected_peers_total Streams to a peer that broke.\n# TYPE etcd_network_disconnected_peers_total counter\n");
	for (size_t i = 0; i < len; i++)
		buf_printf(out, "etcd_network_disconnected_peers_total{Local=\"%" PRIx64 "\",Remote=\"%" PRIx64 "\"} %" PRIu64 "\n", p->self, rows[i].id, rows[i].figures.broke);
	buf_printf(out, "# HELP etcd_network_active_peers 1 while the stream to a peer is open.\n# TYPE etcd_network_active_peers gauge\n");
	for (size_t i = 0; i < len; i++)
		buf_printf(out, "etcd_network_active_peers{Local=\"%" PRIx64 "\",Remote=\"%" PRIx64 "\"} %d\n", p->self, rows[i].id, rows[i].open);
}
