/* metrics.h: counting, for everybody, on any thread, at the price of an addition.
 *
 * Each thread counts in memory of its own, which others only read; a look at the whole adds up all threads, those that have ended included. Counters
 * only rise. A sum that is read while others count may be a moment old, and never goes back. */
#ifndef HOLDFAST_METRICS_H
#define HOLDFAST_METRICS_H

#include "base/slice.h"
#include "errors.h"
#include "methods.h"

enum metric {
	METRIC_HEALTH_OK,
	METRIC_HEALTH_BAD,
	METRIC_REFUSED_BYTES,       /* unary requests: too many bytes under way */
	METRIC_REFUSED_INFLIGHT,    /* messages or calls: too many under way on a stream or a connection */
	METRIC_REFUSED_OVERLOAD,    /* writes: the cell cannot carry more */
	METRIC_REFUSED_STREAM_BYTES, /* messages of streams: too many bytes not taken yet */
	METRIC_REFUSED_CALLS,       /* calls: too many open on this server */
	METRIC_REFUSED_RANGES,      /* big ranges: the budget for their replies is spent */
	METRIC_REFUSED_CONNECTIONS, /* connections: out of descriptors */
	METRIC_LOG_WRITE_BYTES,
	METRIC_CLIENT_BYTES_IN,     /* of messages */
	METRIC_CLIENT_BYTES_OUT,
	METRIC_SLOW_APPLY,          /* turns of the core's thread that took long */
	METRIC_SNAPSHOT_CHUNKS_IN,  /* of other replicas, written aside */
	METRIC_SNAPSHOT_BYTES_IN,
	METRIC_SNAPSHOT_CHUNKS_OUT, /* read for other replicas, and sent */
	METRIC_SNAPSHOT_BYTES_OUT,
	METRIC_COUNT
};

enum metric_time {
	METRIC_TIME_LOG_COMMIT,
	METRIC_TIME_SNAPSHOT_SAVE,
	METRIC_TIME_HASH_REV, /* of the keys, up to a revision */
	METRIC_TIMES
};

enum { METRIC_BUCKETS = 14 }; /* up to 1, 2, 4 ... 8192 ms, as etcd has its disk's; above: in the sum and the count alone */

enum { METRIC_CALL_BUCKETS = 11 }; /* as Prometheus has them by default */

void metric_add(enum metric m, uint64_t n);
void metric_took(enum metric_time t, uint64_t us);
/* Of whoever says which version of the API he has: METRIC_CLIENT_UNKNOWN does not. */
enum { METRIC_CLIENT_UNKNOWN, METRIC_CLIENT_OTHER /* for what is odd, or too much */, METRIC_CLIENTS_MAX = 16 };
unsigned metric_client(struct slice version);
const char *metric_client_version(unsigned client); /* NULL: there is none */
void metric_client_call(unsigned client, bool stream);
/* A call of a service: begun, ended; and its messages. */
void metric_call_started(enum method_id m);
void metric_call_handled(enum method_id m, enum status_code status);
void metric_call_received(enum method_id m, uint64_t messages, uint64_t bytes);
/* From its beginning to its end; only asked for when somebody wants to know. */
void metric_call_took(enum method_id m, uint64_t us);
void metric_call_sent(enum method_id m, uint64_t messages, uint64_t bytes);

struct metrics {
	uint64_t counters[METRIC_COUNT];
	uint64_t started[METHOD_COUNT], received[METHOD_COUNT], sent[METHOD_COUNT];
	uint64_t handled[METHOD_COUNT][STATUS_COUNT];
	uint64_t clients[METRIC_CLIENTS_MAX][2]; /* unary calls, streams */
	struct {
		uint64_t count, sum_us, buckets[METRIC_BUCKETS]; /* each bucket by itself, not cumulated */
	} times[METRIC_TIMES];
	struct {
		uint64_t sum_us, buckets[METRIC_CALL_BUCKETS + 1]; /* the last: longer */
	} calls[METHOD_COUNT];
};
extern const double metric_call_bounds_s[METRIC_CALL_BUCKETS];
void metrics_sum(struct metrics *ret); /* large: some 20 KB */

#endif
