/* outbox.c: see outbox.h. */
#include "outbox.h"

#include "base/mem.h"

#define OVERHEAD 64 /* of a message in memory, so that a flood of empty ones is bounded too */

static size_t weight(const struct outbox_item *item)
{
	return item->bytes.len + OVERHEAD;
}

static void item_free(struct outbox_item *item)
{
	buf_free(&item->bytes);
	free(item);
}

static struct outbox_item *pop(struct list *from)
{
	struct list *n = list_pop_front(from);
	return n ? CONTAINER_OF(n, struct outbox_item, link) : NULL;
}

void outbox_items_free(struct list *items)
{
	struct outbox_item *item;
	while ((item = pop(items)))
		item_free(item);
}

void outbox_init(struct outbox *o)
{
	*o = (struct outbox){ .dropped = 0 };
	list_init(&o->normal);
	list_init(&o->bulk);
}

void outbox_deinit(struct outbox *o)
{
	outbox_items_free(&o->normal);
	outbox_items_free(&o->bulk);
	o->normal_bytes = o->bulk_len = 0;
}

void outbox_trim(struct outbox *o, size_t limit)
{
	while (o->normal_bytes > limit && o->normal.next != o->normal.prev) {
		struct outbox_item *item = pop(&o->normal);
		o->normal_bytes -= weight(item);
		o->dropped++;
		item_free(item);
	}
}

void outbox_put_take(struct outbox *o, struct buf *bytes, bool bulk, size_t limit)
{
	struct outbox_item *item;
	if (bulk && o->bulk_len >= OUTBOX_BULK_MAX) {
		o->dropped++;
		buf_free(bytes);
		return;
	}
	item = mem_alloc(sizeof(*item));
	item->bytes = buf_take(bytes);
	if (bulk) {
		list_push_back(&o->bulk, &item->link);
		o->bulk_len++;
		return;
	}
	list_push_back(&o->normal, &item->link);
	o->normal_bytes += weight(item);
	outbox_trim(o, limit);
}

static void move_list(struct list *to, struct list *from)
{
	struct list *n;
	while ((n = list_pop_front(from)))
		list_push_back(to, n);
}

void outbox_move(struct outbox *to, struct outbox *from)
{
	ASSERT(outbox_empty(to));
	move_list(&to->normal, &from->normal);
	move_list(&to->bulk, &from->bulk);
	to->normal_bytes = from->normal_bytes;
	to->bulk_len = from->bulk_len;
	to->dropped = from->dropped;
	from->normal_bytes = from->bulk_len = 0;
}

bool outbox_empty(const struct outbox *o)
{
	return list_empty(&o->normal) && list_empty(&o->bulk);
}

void outbox_take(struct outbox *o, struct list *ret, size_t max_bytes)
{
	struct outbox_item *item;
	size_t bytes = 0;
	bool bulk_due = o->bulk_waited >= OUTBOX_BULK_PATIENCE;
	while (bytes < max_bytes && (item = pop(&o->normal))) {
		o->normal_bytes -= weight(item);
		bytes += item->bytes.len;
		list_push_back(ret, &item->link);
	}
	if (list_empty(&o->bulk)) {
		o->bulk_waited = 0;
		return;
	}
	if (bytes >= max_bytes && !bulk_due) {
		o->bulk_waited++;
		return;
	}
	item = pop(&o->bulk);
	o->bulk_len--;
	o->bulk_waited = 0;
	list_push_back(ret, &item->link);
}
