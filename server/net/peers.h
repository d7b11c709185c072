/* peers.h: links to the other replicas, over gRPC client streams (one long stream a peer and direction).
 *
 * One bidirectional-stream method, /holdfast.internal.Peer/Stream, carries packed internal.PeerMessage one a gRPC message (a replica sends only on
 * streams it opened and receives only on streams it accepted). Messages are for a consensus protocol that expects loss: a queue that is full drops its oldest
 * droppable message, and a broken stream loses what was in it.
 */
#ifndef HOLDFAST_NET_PEERS_H
#define HOLDFAST_NET_PEERS_H

#include "base/buf.h"
#include "core/types.h"

struct peers;

struct peers_callbacks {
	void *ctx;
	/* Any thread. bytes borrowed. Returns false when the node's queue is full (the message is dropped). */
	bool (*message)(void *ctx, struct slice bytes);
	/* The stream to or from `peer` broke and could not be re-established at once (connection refused or closed, not mere silence). Any thread. */
	void (*lost)(void *ctx, member_id peer);
};

struct peer_address {
	member_id id;
	const char *const *urls; /* http://host:port; tried in turn */
	size_t urls_len;
};

struct peers *peers_new(member_id self, const struct peers_callbacks *cb);
/* Listens for peers on these URLs. ERR_IO with em: which address and why. */
enum err peers_listen(struct peers *p, const char *const *urls, size_t len, struct errmsg *em);
/* Replaces the set of peers to talk to (self is ignored). Any thread. */
void peers_set(struct peers *p, const struct peer_address *list, size_t len);
/* Any thread. Takes bytes. Never blocks. bulk: queued behind all others and bounded to few. */
void peers_send(struct peers *p, member_id to, struct buf *bytes, bool bulk);
void peers_stop(struct peers *p); /* closes all, joins its threads */
void peers_free(struct peers *p);

#endif
