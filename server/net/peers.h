/* peers.h: links to the other replicas, over gRPC client streams (one long stream a peer and direction).
 *
 * One bidirectional-stream method, /holdfast.internal.Peer/Stream, carries packed internal.PeerMessage, several a gRPC message (see frame.h); a replica sends
 * only on streams it opened and receives only on streams it accepted. Both ends name themselves in their initial metadata, `holdfast-member` in decimal.
 *
 * Messages are for a consensus protocol that expects loss, duplication never: every message that is not bulk may be dropped. A queue that is full drops its
 * oldest, and a broken stream loses what was in it. Between two replicas order is kept, but for bulk, which may be overtaken.
 */
#ifndef HOLDFAST_NET_PEERS_H
#define HOLDFAST_NET_PEERS_H

#include "base/buf.h"
#include "core/types.h"

struct peers;

#define PEERS_GUESTS 8
#define PEERS_MAX 32 /* links; above it peers_set leaves the rest out and logs it */

struct tls_context;
struct peers_callbacks {
	void *ctx;
	/* Any thread. bytes borrowed. Returns false when the node's queue is full (the message is dropped). */
	bool (*message)(void *ctx, struct slice bytes);
	/* The stream to or from `peer` broke and could not be re-established at once (connection refused or closed, not mere silence). Once a loss. Any thread. */
	void (*lost)(void *ctx, member_id peer);
};

struct peer_address {
	member_id id;
	const char *const *urls; /* http://host:port, https://host:port (see peers_use_tls) or unix://path; tried in turn */
	size_t urls_len;
};

/* Starts its thread; no peer may connect before peers_listen. */
/* queue: borrowed; to be stopped after peers_stop and before peers_free. NULL: one of its own. */
struct rpc_queue;
struct peers *peers_new(member_id self, const struct peers_callbacks *cb, struct rpc_queue *queue);
/* For https:// URLs, both ways. Before peers_listen and peers_set; borrowed until after peers_free. */
void peers_use_tls(struct peers *p, struct tls_context *tls);
/* Listens for peers on these URLs; once. ERR_IO with em: which address and why. */
enum err peers_listen(struct peers *p, const char *const *urls, size_t len, struct errmsg *em);
uint16_t peers_port(const struct peers *p, size_t i); /* as acceptor_port: for tests that listen on port 0 */
/* Replaces the set of peers to talk to. Self is no peer, but its addresses are told to whoever is dialled. A peer that is not in the set, but has a
 * stream open to here and has told its addresses (or was in the set before) is talked to for as long as that stream lives: it may be a leader that this replica has yet
 * to hear of, or one that was removed and wants to be told. At most PEERS_GUESTS of them. Any thread. */
void peers_set(struct peers *p, const struct peer_address *list, size_t len);
/* Any thread. Takes bytes (at most 16 MiB). Never blocks. bulk: queued behind all others and bounded to few. Unknown peers and a stopped p are
 * fine: the message is dropped. */
void peers_send(struct peers *p, member_id to, struct buf *bytes, bool bulk);
/* What peers_ask_info gets from here: a packed internal.CellInfo; copied. Any thread. */
void peers_set_info(struct peers *p, struct slice info);
/* Asks the replica at that URL (tls: for https, or NULL). Blocks; any thread. ERR_CLOSED: it cannot be reached, or has nothing to tell; em says why. */
enum err peers_ask_info(const char *url, struct tls_context *tls, uint64_t timeout_ms, struct buf *ret, struct errmsg *em);
void peers_write_metrics(struct peers *p, struct buf *out); /* appends Prometheus text. Any thread */
void peers_stop(struct peers *p); /* closes all, joins its threads; no callback comes after it. Not from a callback */
bool peers_left_behind(const struct peers *p); /* after peers_stop: gRPC has not let go of everything, the queue must be left behind as well */
void peers_free(struct peers *p); /* stops it first; NULL is fine; nobody else may use p any more */

#endif
