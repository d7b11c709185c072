/* check.c: asserts everything that tree.h and node.c promise about a tree at rest; for tests and after a restore. */
#include "base/mem.h"
#include "core/tree/node.h"

struct bounds {
	bool has_lo, has_hi;
	struct slice lo, hi; /* lo <= key < hi */
};

struct sums {
	uint64_t len, hash;
};

static bool within(struct bounds b, struct slice key)
{
	return (!b.has_lo || slice_cmp(b.lo, key) <= 0) && (!b.has_hi || slice_cmp(key, b.hi) < 0);
}

static void check_leaf(const struct tree_type *type, struct tree_node *n, struct bounds b, struct sums *sums)
{
	for (unsigned i = 0; i < n->len; i++) {
		struct tree_record *r = leaf_of(n)->records[i];

		ASSERT(r->refs > 0);
		ASSERT(within(b, type->key(r)));
		ASSERT_IF(i > 0, slice_cmp(type->key(leaf_of(n)->records[i - 1]), type->key(r)) < 0);
		sums->len++;
		sums->hash += type->hash(r);
	}
}

static struct bounds child_bounds(struct tree_inner *in, unsigned i, struct bounds b)
{
	if (i > 0) {
		b.has_lo = true;
		b.lo = separator_view(in->separators[i]);
	}
	if (i + 1u < in->node.len) {
		b.has_hi = true;
		b.hi = separator_view(in->separators[i + 1]);
	}
	return b;
}

static void check_node(const struct tree_type *type, struct tree_node *n, unsigned level, struct bounds b, struct sums *sums)
{
	ASSERT(n->refs > 0);
	ASSERT(n->level == level);
	ASSERT(n->len <= NODE_MAX);
	if (level == 0) {
		check_leaf(type, n, b, sums);
		return;
	}
	ASSERT(!inner_of(n)->separators[0]);
	for (unsigned i = 0; i < n->len; i++) {
		struct tree_node *child = inner_of(n)->children[i];
		uint64_t before = sums->len;

		if (i > 0) {
			ASSERT(inner_of(n)->separators[i]->refs > 0);
			ASSERT(within(b, separator_view(inner_of(n)->separators[i])));
		}
		ASSERT(child->len >= NODE_MIN);
		check_node(type, child, level - 1, child_bounds(inner_of(n), i, b), sums);
		ASSERT(inner_of(n)->counts[i] == sums->len - before);
	}
}

void tree_check(const struct tree *t)
{
	struct sums sums = { 0 };

	if (t->root) {
		ASSERT(t->root->level < NODE_DEPTH_MAX);
		ASSERT(t->root->len >= (t->root->level > 0 ? 2 : 1));
		check_node(t->type, t->root, t->root->level, (struct bounds){ 0 }, &sums);
	}
	ASSERT(t->len == sums.len);
	ASSERT(t->hash == sums.hash);
}
