/* client.h: a gateway on a node without a core, and HTTP clients that talk to it through socket pairs. */
#ifndef HOLDFAST_TESTS_GATEWAY_CLIENT_H
#define HOLDFAST_TESTS_GATEWAY_CLIENT_H

#include "fake_node.h"
#include "gateway/gateway.h"

struct setup {
	struct node *node;
	struct service *service;
	struct gateway *gateway;
};

/* Small limits: requests of 64 KiB, 8 connections, 4 KiB of headers, 400 ms for a request, 1 s idle. */
struct gateway_config setup_limits(void); /* what setup_start() takes */
void setup_start(struct setup *s);
void setup_start_with(struct setup *s, struct gateway_config limits); /* service, node and version are filled in */
void setup_end(struct setup *s);

struct client {
	int fd;
	struct buf in;      /* read, and not consumed */
};

struct response {
	int status; /* 0: the connection ended instead */
	struct buf head, body; /* body: de-chunked; NUL-terminated, both */
	bool chunked, whole;
};

void client_open(struct client *c, struct setup *s);
/* The server sees it when the request is there and the client's side is closed. */
void client_open_left(struct client *c, struct setup *s, const char *path, const char *body);
void client_close(struct client *c);
void client_send(struct client *c, const char *text);
void client_post(struct client *c, const char *path, const char *body);
/* Reads one response to its end, or up to timeout_ms. */
void client_read(struct client *c, struct response *r, int timeout_ms);
void response_free(struct response *r);
bool response_has(const struct response *r, const char *header);

void pause_ms(int ms);

#endif
