/* grpc_front.h: gRPC in front of the services, by the gRPC C core library. Bytes in, service call, bytes out; see service.h.
 *
 * Two completion queues, a thread each: one for calls, one for streams of many messages. Connections come from the acceptor as descriptors. Methods of the table are served; any other is
 * answered UNIMPLEMENTED at once. */
#ifndef HOLDFAST_GRPC_FRONT_H
#define HOLDFAST_GRPC_FRONT_H

#include "service/service.h"

struct grpc_front;

struct grpc_front_config {
	struct rpc_queue *queue;          /* borrowed; to be stopped after grpc_front_stop and before grpc_front_free. NULL: one of its own */
	struct service *service;
	uint32_t max_concurrent_streams;
	uint32_t max_request_bytes;       /* the transport takes 512 KiB more, so that etcd's own error can be given */
	uint64_t keepalive_min_time_ms, keepalive_interval_ms, keepalive_timeout_ms;
	uint32_t max_calls;               /* open at once, over all connections; above it ResourceExhausted */
	uint64_t request_timeout_ms;      /* the message of a call that takes just one must have arrived by then; 0: no limit */
	uint64_t idle_timeout_ms;         /* of a connection without a call; 0: no limit */
};

struct grpc_front *grpc_front_new(const struct grpc_front_config *config);
/* A connection that starts with the HTTP/2 preface; the front end owns fd and the reference to who is at its other end. Any thread. */
void grpc_front_adopt(struct grpc_front *f, int fd, struct identity *who);
/* No new calls; open ones get grace_ms, are then cancelled; returns when all are finished. */
void grpc_front_stop(struct grpc_front *f, uint64_t grace_ms);
void grpc_front_free(struct grpc_front *f);

#endif
