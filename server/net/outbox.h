/* outbox.h: messages that wait for one peer's stream, with a bound.
 *
 * Ordinary messages keep their order. Past the limit the oldest go: what a consensus protocol said last is what counts, and it expects loss. Bulk messages
 * (chunks of a snapshot, each asked for by the one before it) go behind all others, and past OUTBOX_BULK_MAX the new one is dropped: the oldest is the one the
 * receiver waits for. Not thread-safe. */
#ifndef HOLDFAST_NET_OUTBOX_H
#define HOLDFAST_NET_OUTBOX_H

#include "base/buf.h"
#include "base/list.h"

#define OUTBOX_BULK_MAX 4
#define OUTBOX_BULK_PATIENCE 16 /* so many batches without a bulk message, then one goes although others wait */

struct outbox_item {
	struct list link;
	struct buf bytes;
};

struct outbox {
	struct list normal, bulk;
	size_t normal_bytes, bulk_len; /* bytes count each message's overhead too */
	size_t bulk_waited;            /* batches taken while a bulk message waited */
	uint64_t dropped;              /* messages, ever */
};

void outbox_init(struct outbox *o);
void outbox_deinit(struct outbox *o);
/* Takes the bytes. Afterwards the ordinary messages are at most `limit` bytes, but the newest is kept whatever its size. */
void outbox_put_take(struct outbox *o, struct buf *bytes, bool bulk, size_t limit);
void outbox_trim(struct outbox *o, size_t limit); /* as if a message had been put with that limit */
void outbox_move(struct outbox *to, struct outbox *from); /* `to` is empty before, `from` after */
bool outbox_empty(const struct outbox *o);
/* Moves the next messages to the end of *ret, in the order to send them: until they are max_bytes or more, but at least one. */
void outbox_take(struct outbox *o, struct list *ret, size_t max_bytes);
void outbox_items_free(struct list *items);

#endif
