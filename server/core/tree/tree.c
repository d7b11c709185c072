/* tree.c: changes of the live tree, and views of it.
 *
 * A change walks down once and remembers the path; then it makes the path its own, from the root down: a node that a view shares is
 * exchanged for a copy, and the copy's children are shared from then on. Without a view every node on the path has one reference, and
 * nothing is copied. Then the leaf changes, counts are corrected along the path, and nodes that became too full or too empty are
 * mended from the leaf up (N2). A split after an append at the very end leaves the left part well filled, since keys that rise (lease
 * IDs, a snapshot being read) would otherwise leave every leaf half empty.
 *
 * The hash is a sum, so that order does not matter and a change costs one subtraction and one addition. */
#include "core/tree/tree.h"

#include "base/mem.h"
#include "core/tree/node.h"

void tree_init(struct tree *t, const struct tree_type *type)
{
	*t = (struct tree){ .type = type };
}

void tree_deinit(struct tree *t)
{
	node_unref(t->type, t->root);
	t->root = NULL;
	t->len = 0;
	t->hash = 0;
}

bool tree_drop_some(struct tree *t, size_t *budget)
{
	t->len = 0;
	t->hash = 0;
	return node_drop_some(t->type, &t->root, budget);
}

struct tree tree_view(const struct tree *t)
{
	if (t->root)
		t->root->refs++;
	return *t;
}

/* Walks to the slot where `key` is or would be. Fills path and at, with at of the leaf possibly one past its end; returns whether it is
 * there. The root exists. */
static bool path_find(struct tree_cursor *c, const struct tree *t, struct slice key)
{
	struct tree_node *n = t->root;
	unsigned at;
	bool found;

	for (c->depth = 0; n->level > 0; c->depth++) {
		ASSERT(c->depth < NODE_DEPTH_MAX - 1);
		at = node_find_child(n, key);
		c->path[c->depth] = n;
		c->at[c->depth] = (uint16_t)at;
		n = inner_of(n)->children[at];
	}
	at = node_find_record(t->type, n, key, &found);
	c->path[c->depth] = n;
	c->at[c->depth] = (uint16_t)at;
	c->depth++;
	return found;
}

/* N4 for every node of the path. */
static void path_own(struct tree_cursor *c, struct tree *t)
{
	struct tree_node **link = &t->root;

	for (unsigned d = 0; d < c->depth; d++) {
		*link = node_own(*link);
		c->path[d] = *link;
		if (d + 1u < c->depth)
			link = &inner_of(*link)->children[c->at[d]];
	}
}

static void path_add_count(struct tree_cursor *c, uint64_t delta)
{
	for (unsigned d = 0; d + 1u < c->depth; d++)
		inner_of(c->path[d])->counts[c->at[d]] += delta;
}

static struct tree_record **path_slot(struct tree_cursor *c)
{
	return &leaf_of(c->path[c->depth - 1])->records[c->at[c->depth - 1]];
}

/* Whether the slot is one past the last record of the tree. */
static bool path_at_end(const struct tree_cursor *c)
{
	for (unsigned d = 0; d + 1u < c->depth; d++)
		if (c->at[d] + 1 != c->path[d]->len)
			return false;
	return c->at[c->depth - 1] == c->path[c->depth - 1]->len;
}

static void grow_root(struct tree *t)
{
	struct tree_node *root = tree_node_new(t->root->level + 1u);

	inner_append(root, t->root);
	t->root = root;
}

/* From the leaf up, as long as a node has filled its spare slot. */
static void mend_overflow(struct tree *t, struct tree_cursor *c, bool appended)
{
	unsigned want = appended ? NODE_SLOTS - NODE_MIN : NODE_SLOTS / 2;

	for (unsigned d = c->depth; d-- > 0 && c->path[d]->len == NODE_SLOTS;) {
		if (d > 0) {
			inner_split_child(t->type, c->path[d - 1], c->at[d - 1], want);
		} else {
			grow_root(t);
			inner_split_child(t->type, t->root, 0, want);
		}
	}
}

static void shrink_root(struct tree *t)
{
	struct tree_node *root = t->root;

	if (root->len == 0) {
		t->root = NULL;
	} else if (root->level > 0 && root->len == 1) {
		t->root = inner_of(root)->children[0];
		t->root->refs++;
	} else {
		return;
	}
	node_unref(t->type, root);
}

/* From the leaf up, as long as a node has too little: it joins a neighbour, or takes from it. */
static void mend_underflow(struct tree *t, struct tree_cursor *c)
{
	for (unsigned d = c->depth; d-- > 1 && c->path[d]->len < NODE_MIN;) {
		struct tree_node *parent = c->path[d - 1];
		unsigned i = c->at[d - 1] > 0 ? c->at[d - 1] - 1u : 0u;
		struct tree_node **pair = &inner_of(parent)->children[i];
		unsigned sum;

		pair[0] = node_own(pair[0]);
		pair[1] = node_own(pair[1]);
		sum = (unsigned)pair[0]->len + pair[1]->len;
		inner_redistribute(t->type, parent, i, sum <= NODE_MERGE_MAX ? sum : sum / 2);
	}
	shrink_root(t);
}

static void replace_record(struct tree *t, struct tree_record **slot, struct tree_record *r)
{
	struct tree_record *old = *slot;

	t->hash -= t->type->hash(old);
	t->hash += t->type->hash(r);
	*slot = r;
	tree_record_unref(t->type, old);
}

void tree_put_take(struct tree *t, struct tree_record *r)
{
	struct tree_cursor c;
	bool appended;

	ASSERT(r->refs > 0);
	if (!t->root)
		t->root = tree_node_new(0);
	if (path_find(&c, t, t->type->key(r))) {
		path_own(&c, t);
		replace_record(t, path_slot(&c), r);
		return;
	}
	path_own(&c, t);
	appended = path_at_end(&c);
	leaf_insert(c.path[c.depth - 1], c.at[c.depth - 1], r);
	path_add_count(&c, 1);
	t->len++;
	t->hash += t->type->hash(r);
	mend_overflow(t, &c, appended);
}

bool tree_remove(struct tree *t, struct slice key)
{
	struct tree_cursor c;
	struct tree_record *r;

	if (!t->root || !path_find(&c, t, key))
		return false;
	path_own(&c, t);
	r = *path_slot(&c);
	leaf_remove(c.path[c.depth - 1], c.at[c.depth - 1]);
	path_add_count(&c, UINT64_MAX); /* that is -1 */
	t->len--;
	t->hash -= t->type->hash(r);
	mend_underflow(t, &c);
	tree_record_unref(t->type, r); /* last: `key` may be the record's own */
	return true;
}

struct tree_record *tree_get(const struct tree *t, struct slice key)
{
	struct tree_node *n = t->root;
	unsigned at;
	bool found;

	if (!n)
		return NULL;
	while (n->level > 0)
		n = inner_of(n)->children[node_find_child(n, key)];
	at = node_find_record(t->type, n, key, &found);
	return found ? leaf_of(n)->records[at] : NULL;
}

struct tree_record *tree_edit_begin(struct tree *t, struct slice key)
{
	struct tree_cursor c;
	struct tree_record **slot, *shared;

	if (!t->root || !path_find(&c, t, key))
		return NULL;
	path_own(&c, t);
	slot = path_slot(&c);
	t->hash -= t->type->hash(*slot);
	if ((*slot)->refs > 1) {
		shared = *slot;
		*slot = t->type->clone(shared);
		ASSERT((*slot)->refs == 1);
		shared->refs--;
	}
	return *slot;
}

void tree_edit_end(struct tree *t, struct tree_record *r)
{
	ASSERT(r->refs == 1); /* T2: nobody may have taken a reference to what was being changed */
	t->hash += t->type->hash(r);
}
