/* cursor.c: reading a tree in order, and counting without reading.
 *
 * Everything here may run on any thread over an open view, and so looks at nothing that the owner writes: no reference counts, and no
 * node of the live tree. A cursor is the path from the root to its record; there are no links between leaves, which copies of a path
 * could not keep right. */
#include "base/mem.h"
#include "core/tree/node.h"

static struct tree_record *cursor_record(const struct tree_cursor *c)
{
	return leaf_of(c->path[c->depth - 1])->records[c->at[c->depth - 1]];
}

static void cursor_push(struct tree_cursor *c, struct tree_node *n, unsigned at)
{
	ASSERT(c->depth < NODE_DEPTH_MAX);
	c->path[c->depth] = n;
	c->at[c->depth] = (uint16_t)at;
	c->depth++;
}

/* From n down along its first or last children to a leaf. */
static void cursor_descend(struct tree_cursor *c, struct tree_node *n, bool last)
{
	for (;;) {
		unsigned at = last ? n->len - 1u : 0u;
		cursor_push(c, n, at);
		if (n->level == 0)
			return;
		n = inner_of(n)->children[at];
	}
}

/* To the first record of the next leaf, or the last of the one before. */
static struct tree_record *cursor_leave_leaf(struct tree_cursor *c, bool backward)
{
	while (--c->depth > 0) {
		struct tree_node *n = c->path[c->depth - 1];
		uint16_t *at = &c->at[c->depth - 1];

		if (backward ? *at > 0 : *at + 1 < n->len) {
			*at = (uint16_t)(backward ? *at - 1 : *at + 1);
			cursor_descend(c, inner_of(n)->children[*at], backward);
			return cursor_record(c);
		}
	}
	return NULL;
}

static struct tree_record *seek(struct tree_cursor *c, const struct tree *t, struct slice key, bool before)
{
	struct tree_node *n = t->root;
	unsigned at;
	bool found;

	c->tree = t;
	c->depth = 0;
	if (!n)
		return NULL;
	while (n->level > 0) {
		at = node_find_child(n, key);
		cursor_push(c, n, at);
		n = inner_of(n)->children[at];
	}
	at = node_find_record(t->type, n, key, &found);
	cursor_push(c, n, at);
	if (before)
		return tree_prev(c);
	return at < n->len ? cursor_record(c) : cursor_leave_leaf(c, false);
}

struct tree_record *tree_seek(struct tree_cursor *c, const struct tree *t, struct slice key)
{
	return seek(c, t, key, false);
}

struct tree_record *tree_seek_before(struct tree_cursor *c, const struct tree *t, struct slice key)
{
	return seek(c, t, key, true);
}

static struct tree_record *seek_edge(struct tree_cursor *c, const struct tree *t, bool last)
{
	c->tree = t;
	c->depth = 0;
	if (!t->root)
		return NULL;
	cursor_descend(c, t->root, last);
	return cursor_record(c);
}

struct tree_record *tree_first(struct tree_cursor *c, const struct tree *t)
{
	return seek_edge(c, t, false);
}

struct tree_record *tree_last(struct tree_cursor *c, const struct tree *t)
{
	return seek_edge(c, t, true);
}

struct tree_record *tree_next(struct tree_cursor *c)
{
	if (c->depth == 0)
		return NULL;
	if (c->at[c->depth - 1] + 1 >= c->path[c->depth - 1]->len)
		return cursor_leave_leaf(c, false);
	c->at[c->depth - 1]++;
	return cursor_record(c);
}

struct tree_record *tree_prev(struct tree_cursor *c)
{
	if (c->depth == 0)
		return NULL;
	if (c->at[c->depth - 1] == 0)
		return cursor_leave_leaf(c, true);
	c->at[c->depth - 1]--;
	return cursor_record(c);
}

/* Records with a key below `key`. */
static uint64_t rank_of(const struct tree *t, struct slice key)
{
	struct tree_node *n = t->root;
	uint64_t rank = 0;
	bool found;

	if (!n)
		return 0;
	while (n->level > 0) {
		unsigned at = node_find_child(n, key);
		for (unsigned i = 0; i < at; i++)
			rank += inner_of(n)->counts[i];
		n = inner_of(n)->children[at];
	}
	return rank + node_find_record(t->type, n, key, &found);
}

uint64_t tree_count(const struct tree *t, struct slice lo, struct slice hi, bool has_hi)
{
	uint64_t from = rank_of(t, lo);
	uint64_t to = has_hi ? rank_of(t, hi) : t->len;

	return to > from ? to - from : 0;
}
