/* gateway.h: HTTP/1.1 on the client port, by h2o: JSON for every method of the table, /health, /version, /metrics. One thread. */
#ifndef HOLDFAST_GATEWAY_H
#define HOLDFAST_GATEWAY_H

#include "service/service.h"

struct gateway;

struct gateway_config {
	struct service *service;
	struct node *node;
	uint32_t max_request_bytes;   /* of the protobuf message; JSON may be larger by base64 and names */
	uint32_t max_connections;     /* above it: 503 and closed */
	uint32_t max_header_bytes;
	uint64_t request_timeout_ms;  /* header and body must have arrived by then */
	uint64_t idle_timeout_ms;     /* of a kept-alive connection */
	uint64_t write_timeout_ms;    /* a client that takes nothing of the end of its reply for so long is let go; 0: never */
	const char *server_version;   /* /version: etcdserver */
	uint64_t member_id, quota_bytes; /* for metrics */
	bool extensive;               /* metrics of how long calls take, too: service_limits.time_calls */
	bool no_json;                 /* serve pages alone */
	const char *const *origins;   /* of web pages that may call; len 0: all. Borrowed */
	size_t origins_len;
	const char *const *hosts;     /* names that plain requests may use; len 0: any. Borrowed */
	size_t hosts_len;
	/* Appends Prometheus text of the parts the gateway does not know; may be NULL. */
	void (*metrics)(void *ctx, struct buf *out);
	void *metrics_ctx;
};

struct gateway *gateway_new(const struct gateway_config *config);
void gateway_adopt(struct gateway *g, int fd, struct identity *who); /* owns fd and the reference; any thread */
void gateway_adopt_pages(struct gateway *g, int fd, struct identity *who); /* the same, for one that gets /health, /metrics and the like, and no method */
void gateway_stop(struct gateway *g); /* cancels what is open, returns when all is finished */
void gateway_free(struct gateway *g);

#endif
