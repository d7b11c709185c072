/* internal.h: what the files of peers share.
 *
 * What concerns gRPC is done by the tags, which run on the queue's threads, and by the clock's thread, one at a time, under `work`: it guards every field that does
 * not say otherwise. Other threads put messages into outboxes and change the list of links, under mu (taken after work, never before), and post the wake tag; mu is
 * never held while gRPC or a callback runs.
 *
 *   (N1) ops is the number of tags that gRPC has of us, but for the wake tag; we are done when it is 0 and nobody can post the wake tag.
 *   (N2) links are freed under work, so one that was found under mu stays valid as long as work is held. */
#ifndef HOLDFAST_NET_INTERNAL_H
#define HOLDFAST_NET_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "acceptor.h"
#include "base/list.h"
#include "outbox.h"
#include "peers.h"
#include "rpc/rpc.h"
#include "tls_dial.h"

#define PEERS_METHOD "/holdfast.internal.Peer/Stream"
#define PEERS_INFO_METHOD "/holdfast.internal.Peer/Info"
#define PEERS_PROBE_METHOD "/holdfast.internal.Peer/Probe" /* answered with nothing, at once */
#define PEERS_MEMBER_KEY "holdfast-member"
#define PEERS_CONNECT_MS 1000         /* TCP's handshake, TLS's and HTTP/2's */
#define PEERS_URLS_KEY "holdfast-peer-urls" /* of who dials, with commas between them */
#define PEERS_MEANT_KEY "holdfast-meant-for" /* whom the stream is meant for: there may be another at that address by now */
#define PEERS_KEEPALIVE_MS 3000         /* a stream that was silent so long is asked for a sign of life */
#define PEERS_KEEPALIVE_TIMEOUT_MS 2000 /* which has to come within so long; also TCP's own bound for unacknowledged bytes */

#define PEERS_PROBE_MS 10000            /* between two looks at how long a peer takes to answer */

#define PEERS_FAREWELL_MS 2000          /* to tell a peer that has left the set what is left to tell */

#define OUTBOX_OPEN_BYTES (32U << 20)   /* what may wait for a stream that is open */
#define OUTBOX_CLOSED_BYTES (1U << 20)  /* for one that is not: what is old when the peer comes back is of no use to it */

struct dial;
struct in_request;

/* Where to dial. */
struct target {
	char *text;                        /* in gRPC's form */
	char *host, *port, *name;          /* under TLS: where to connect, and what the certificate must be for; NULL: plain */
};

enum { ROUND_TRIP_BUCKETS = 16 };

/* What went to and came from a peer, since the start. */
struct link_figures {
	uint64_t sent_bytes, received_bytes;
	uint64_t broke;           /* streams to it that were open and are not any more */
	uint64_t receives_failed; /* streams from it that broke, and bytes that are no frame */
	uint64_t answers, answers_us, answers_in[ROUND_TRIP_BUCKETS]; /* each bucket by itself: up to 100 us, 200, 400 ... 3.3 s */
};

struct link {
	struct peers *peers;
	member_id id;
	struct target *targets;
	size_t targets_len;

	/* under mu */
	struct list node;     /* in peers->links or peers->removed */
	struct outbox outbox;
	bool open;            /* its outbox may grow to the larger bound */
	bool ready;           /* open and nothing under way: who puts a message must wake the thread */
	bool in_open;         /* the peer has a stream open to here */
	bool guest;           /* in no set: gone with that stream */
	struct link_figures figures;
	uint64_t leave_ms;    /* a guest that was in the set before: gone by then; 0: no such time */

	/* under work */
	struct dial *dial;    /* the stream, or the attempt at one; NULL: waits for due_ms */
	uint64_t due_ms;
	uint64_t probe_ms;    /* while open: when it is asked how long it takes to answer */
	size_t target;        /* index of the one tried, or to be tried next */
	size_t left;          /* targets still to be tried in this round of attempts */
	bool refused;         /* in this round (the last one, while waiting) somebody said no, rather than nothing */
	unsigned int failed;  /* rounds since it was open */
	bool had_out, had_in; /* the stream to it, from it, was open since the peer was last reported lost */
};

struct peers {
	member_id self;
	char self_text[24]; /* decimal, for metadata */
	struct peers_callbacks cb;
	struct tls_context *tls;    /* NULL: no https:// */
	struct tls_dialer *dialer;  /* NULL: the same */
	struct acceptor *acceptor; /* NULL before peers_listen; its thread hands descriptors to `server` */
	pthread_t thread;          /* the clock's */
	bool running;              /* the owner's thread */
	pthread_mutex_t work;
	pthread_cond_t clock_wake; /* something is due earlier than the clock knows, or the end goes on */
	uint64_t clock_at_ms;      /* when the clock looks again */

	struct rpc_queue *own_queue; /* NULL: it is shared */
	grpc_completion_queue *cq;
	grpc_server *server;
	grpc_server_credentials *server_creds;
	grpc_channel_credentials *channel_creds;
	grpc_channel *wake_channel; /* leads nowhere */
	grpc_call *wake_call;       /* its empty batches post wake_tag; never started */
	struct rpc_tag wake_tag;
	atomic_bool wake_posted;    /* whoever sets it posts the tag */

	pthread_mutex_t mu;
	struct list links, removed; /* under mu, as is the rest of this group */
	size_t links_len;
	bool stopping;
	struct buf self_urls; /* as PEERS_URLS_KEY has it */
	struct buf info;      /* what PEERS_INFO_METHOD answers; empty: nothing */

	/* under work */
	size_t ops;
	uint64_t next_due_ms; /* no link that waits is due before; UINT64_MAX: none waits */
	bool ending;          /* it has seen `stopping` */
	bool wake_closed;     /* nobody posts the wake tag any more */
	uint64_t give_up_ms;  /* when ending: for what gRPC does not let go */
	bool left_behind;     /* it was given up */
	struct peers *next_left_behind;
	struct list dials;    /* all of them */
	struct list round_trips;
	struct list streams_in;
	size_t streams_in_len;
	struct in_request *request;
	struct rpc_tag shutdown_tag;
	struct buf scratch;
};

/* Around all that a tag does. */
void peers_enter(struct peers *p);
void peers_leave(struct peers *p);
void peers_wake(struct peers *p); /* any thread */

/* ---- link.c: streams that we open ---- */

grpc_channel *link_channel(const struct peers *p, const struct target *t);

struct link *link_new(struct peers *p, const struct peer_address *address); /* any thread */
bool link_same_targets(const struct link *a, const struct link *b);
void link_free(struct link *l);            /* no dial may be left */
void links_run(struct peers *p);           /* after a wake: new links, removed ones, outboxes */
uint64_t links_tick(struct peers *p);      /* what is due; returns when to call it next */
void link_received(struct peers *p, member_id member, size_t bytes, bool failed);
void link_stream_in_opened(struct peers *p, member_id member, struct slice urls);
void link_stream_in_broke(struct peers *p, member_id member);

void link_answered(struct peers *p, member_id member, uint64_t us);

/* ---- round_trip.c ---- */

void round_trip_begin(struct peers *p, member_id member, grpc_channel *channel);
void round_trips_cancel(struct peers *p);

/* ---- peers_in.c: streams that others open ---- */

void peers_in_start(struct peers *p);
void peers_in_adopt(void *peers, int fd, struct identity *who); /* the acceptor's thread */
bool peers_in_has(const struct peers *p, member_id member);      /* its stream is open */
void peers_in_stop(struct peers *p);
void peers_in_free(struct peers *p); /* after the last tag */

#endif
