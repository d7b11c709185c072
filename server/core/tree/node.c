/* node.c: what one node can do, and two neighbours with each other.
 *
 * Leaves hold records, inner nodes hold children with the number of records below each. Between two children stands a separator: the
 * shortest bytes that are above every key on its left and not above any on its right. It is a copy with a count of its own, not a
 * pointer to a record. Were it a record, then a removed or replaced one would have to live on as long as some node, perhaps only in a
 * view, still steers by it, old values and all; and its second reference would make tree_edit_begin copy it for nothing. A separator
 * never has to follow the records: it stays right when the record that it was made from is replaced (same key), changed in place (the
 * key may not change) or removed (a bound need not be met). A new key is led to the one child whose bounds hold it. So separators are
 * made and dropped only where slots move between neighbours.
 *
 *   (N1) separators[i] <= every key below child i < separators[i + 1], and what an ancestor says of the whole node holds as well.
 *   (N2) between calls every node but the root has NODE_MIN..NODE_MAX slots in use. A root leaf has at least one, a root above has two.
 *   (N3) counts[i] is the number of records below child i.
 *   (N4) every pointer in a node is one reference. A node is written only when its own count is one and so are all its ancestors':
 *        then nothing but the live tree leads to it (T2).
 *
 * The count of a shared node is written by the owner while a reader on another thread reads the fields beside it: other memory, no
 * race, as long as readers leave counts alone. The functions that readers use (find, cursor.c) do. */
#include "core/tree/node.h"

#include <endian.h>

#include "base/mem.h"

/* Most comparisons of two keys are decided by their first bytes, as a number: shorter keys as if zeros followed, which leaves the order of
 * those that differ here as it is. */
static inline uint64_t first_bytes(struct slice key)
{
	uint64_t v = 0;
	uint32_t head, tail;

	if (key.len >= sizeof(v)) {
		memcpy(&v, key.ptr, sizeof(v));
		return be64toh(v);
	}
	if (key.len >= sizeof(head)) { /* two halves that overlap agree where they do */
		memcpy(&head, key.ptr, sizeof(head));
		memcpy(&tail, key.ptr + key.len - sizeof(tail), sizeof(tail));
		return (uint64_t)be32toh(head) << 32 | (uint64_t)be32toh(tail) << (64 - 8 * key.len);
	}
	for (size_t i = 0; i < key.len; i++)
		v |= (uint64_t)key.ptr[i] << (56 - 8 * i);
	return v;
}

/* slice_cmp(a, key), where `first` is first_bytes(key). */
static inline int compare(struct slice a, struct slice key, uint64_t first)
{
	uint64_t v = first_bytes(a);

	if (v != first)
		return v < first ? -1 : 1;
	if (a.len <= sizeof(v) || key.len <= sizeof(v))
		return (a.len > key.len) - (a.len < key.len);
	return slice_cmp(slice_of(a.ptr + sizeof(v), a.len - sizeof(v)), slice_of(key.ptr + sizeof(v), key.len - sizeof(v)));
}

static struct tree_separator *separator_between(struct slice below, struct slice above)
{
	size_t n = 0;
	struct tree_separator *s;

	while (n < below.len && below.ptr[n] == above.ptr[n])
		n++;
	ASSERT(n < above.len);
	s = mem_alloc(sizeof(*s) + n + 1);
	s->refs = 1;
	s->len = (uint32_t)(n + 1);
	memcpy(s->bytes, above.ptr, n + 1);
	return s;
}

static void separator_unref(struct tree_separator *s)
{
	if (s && --s->refs == 0)
		free(s);
}

void tree_record_unref(const struct tree_type *type, struct tree_record *r)
{
	ASSERT(r->refs > 0);
	if (--r->refs == 0)
		type->free(r);
}

struct tree_node *tree_node_new(unsigned level)
{
	struct tree_node *n = mem_alloc(level ? sizeof(struct tree_inner) : sizeof(struct tree_leaf));

	n->refs = 1;
	n->len = 0;
	n->level = (uint16_t)level;
	return n;
}

/* Recursion no deeper than the tree. */
void node_unref(const struct tree_type *type, struct tree_node *n)
{
	if (!n)
		return;
	ASSERT(n->refs > 0);
	if (--n->refs > 0)
		return;
	for (unsigned i = 0; i < n->len; i++) {
		if (n->level == 0) {
			tree_record_unref(type, leaf_of(n)->records[i]);
		} else {
			separator_unref(inner_of(n)->separators[i]);
			node_unref(type, inner_of(n)->children[i]);
		}
	}
	free(n);
}

/* The last child of a node that nobody else holds goes, whole or as a reference. */
static void drop_last_child(const struct tree_type *type, struct tree_node *parent)
{
	parent->len--;
	separator_unref(inner_of(parent)->separators[parent->len]);
	node_unref(type, inner_of(parent)->children[parent->len]);
}

/* From the end, leaf by leaf: what only this tree holds is taken apart in place, what others hold as well costs one reference. */
bool node_drop_some(const struct tree_type *type, struct tree_node **root, size_t *budget)
{
	while (*root && *budget > 0) {
		struct tree_node *parent = NULL, *n = *root;
		size_t cost;

		while (n->refs == 1 && n->level > 0 && n->len > 0) {
			parent = n;
			n = inner_of(n)->children[n->len - 1];
		}
		cost = n->refs == 1 ? n->len + 1u : 1u;
		*budget -= cost < *budget ? cost : *budget;
		if (parent) {
			drop_last_child(type, parent);
		} else {
			node_unref(type, n);
			*root = NULL;
		}
	}
	return *root == NULL;
}

static struct tree_node *leaf_copy(struct tree_node *n)
{
	struct tree_leaf *copy = leaf_of(tree_node_new(0));

	copy->node.len = n->len;
	memcpy(copy->records, leaf_of(n)->records, n->len * sizeof(copy->records[0]));
	for (unsigned i = 0; i < n->len; i++)
		copy->records[i]->refs++;
	return &copy->node;
}

static struct tree_node *inner_copy(struct tree_node *n)
{
	const struct tree_inner *from = inner_of(n);
	struct tree_inner *copy = inner_of(tree_node_new(n->level));

	copy->node.len = n->len;
	memcpy(copy->children, from->children, n->len * sizeof(copy->children[0]));
	memcpy(copy->counts, from->counts, n->len * sizeof(copy->counts[0]));
	memcpy(copy->separators, from->separators, n->len * sizeof(copy->separators[0]));
	for (unsigned i = 0; i < n->len; i++) {
		copy->children[i]->refs++;
		if (i > 0)
			copy->separators[i]->refs++;
	}
	return &copy->node;
}

struct tree_node *node_own(struct tree_node *n)
{
	if (n->refs == 1)
		return n;
	n->refs--;
	return n->level ? inner_copy(n) : leaf_copy(n);
}

uint64_t node_count(struct tree_node *n)
{
	uint64_t sum = 0;

	if (n->level == 0)
		return n->len;
	for (unsigned i = 0; i < n->len; i++)
		sum += inner_of(n)->counts[i];
	return sum;
}

unsigned node_find_child(struct tree_node *n, struct slice key)
{
	unsigned lo = 0, hi = n->len; /* the child is in [lo, hi) */
	uint64_t first = first_bytes(key);

	while (hi - lo > 1) {
		unsigned mid = lo + (hi - lo) / 2;
		if (compare(separator_view(inner_of(n)->separators[mid]), key, first) <= 0)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

unsigned node_find_record(const struct tree_type *type, struct tree_node *n, struct slice key, bool *ret_found)
{
	unsigned lo = 0, hi = n->len;
	uint64_t first = first_bytes(key);

	*ret_found = false;
	while (lo < hi) {
		unsigned mid = lo + (hi - lo) / 2;
		int c = compare(type->key(leaf_of(n)->records[mid]), key, first);

		if (c == 0) {
			*ret_found = true;
			return mid;
		}
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Every array of a node has slots of this size. */
#define SLOT sizeof(uint64_t)
_Static_assert(sizeof(void *) == SLOT, "pointers and counts move alike");

static void slots_open(void *slots, unsigned len, unsigned at)
{
	char *p = (char *)slots + at * SLOT;

	memmove(p + SLOT, p, (len - at) * SLOT);
}

static void slots_close(void *slots, unsigned len, unsigned at)
{
	char *p = (char *)slots + at * SLOT;

	memmove(p, p + SLOT, (len - at - 1) * SLOT);
}

void leaf_insert(struct tree_node *n, unsigned at, struct tree_record *r)
{
	ASSERT(n->len < NODE_SLOTS);
	slots_open(leaf_of(n)->records, n->len, at);
	leaf_of(n)->records[at] = r;
	n->len++;
}

void leaf_remove(struct tree_node *n, unsigned at)
{
	ASSERT(at < n->len);
	slots_close(leaf_of(n)->records, n->len, at);
	n->len--;
}

static void inner_insert(struct tree_node *n, unsigned at, struct tree_node *child)
{
	struct tree_inner *in = inner_of(n);

	ASSERT(n->len < NODE_SLOTS);
	slots_open(in->children, n->len, at);
	slots_open(in->counts, n->len, at);
	slots_open(in->separators, n->len, at);
	in->children[at] = child;
	in->counts[at] = node_count(child);
	in->separators[at] = NULL;
	n->len++;
}

static void inner_remove(struct tree_node *n, unsigned at)
{
	struct tree_inner *in = inner_of(n);

	slots_close(in->children, n->len, at);
	slots_close(in->counts, n->len, at);
	slots_close(in->separators, n->len, at);
	n->len--;
}

void inner_append(struct tree_node *n, struct tree_node *child)
{
	inner_insert(n, n->len, child);
}

struct span {
	char *slots;
	unsigned len;
};

/* Over the boundary between two neighbours' arrays, until the left one has `want`. */
static void slots_flow(struct span left, struct span right, unsigned want)
{
	if (want >= left.len) {
		unsigned k = want - left.len;
		memcpy(left.slots + left.len * SLOT, right.slots, k * SLOT);
		memmove(right.slots, right.slots + k * SLOT, (right.len - k) * SLOT);
	} else {
		unsigned k = left.len - want;
		memmove(right.slots + k * SLOT, right.slots, right.len * SLOT);
		memcpy(right.slots, left.slots + want * SLOT, k * SLOT);
	}
}

#define FLOW(left, right, array, want)                                                 \
	slots_flow((struct span){ (char *)(left)->array, (left)->node.len },           \
		   (struct span){ (char *)(right)->array, (right)->node.len }, (want))

static void node_flow(struct tree_node *left, struct tree_node *right, unsigned want)
{
	if (left->level == 0) {
		FLOW(leaf_of(left), leaf_of(right), records, want);
	} else {
		FLOW(inner_of(left), inner_of(right), children, want);
		FLOW(inner_of(left), inner_of(right), counts, want);
		FLOW(inner_of(left), inner_of(right), separators, want);
	}
	right->len = (uint16_t)(left->len + right->len - want);
	left->len = (uint16_t)want;
}

static struct tree_separator *leaf_separator(const struct tree_type *type, struct tree_node *left, struct tree_node *right)
{
	return separator_between(type->key(leaf_of(left)->records[left->len - 1]), type->key(leaf_of(right)->records[0]));
}

void inner_redistribute(const struct tree_type *type, struct tree_node *n, unsigned i, unsigned want)
{
	struct tree_inner *in = inner_of(n);
	struct tree_node *left = in->children[i], *right = in->children[i + 1];

	ASSERT(want > 0 && want <= NODE_MAX);
	ASSERT(want <= (unsigned)left->len + right->len && left->len + right->len - want <= NODE_MAX);
	/* Between leaves the separator is made anew. Between inner nodes it is lowered into the slot that it bounds, moves with that
	 * one, and the separator of whichever slot then comes first on the right is raised in its place. */
	if (left->level == 0)
		separator_unref(in->separators[i + 1]);
	else
		inner_of(right)->separators[0] = in->separators[i + 1];
	node_flow(left, right, want);
	in->counts[i] = node_count(left);
	if (right->len == 0) {
		inner_remove(n, i + 1);
		node_unref(type, right);
		return;
	}
	in->counts[i + 1] = node_count(right);
	if (left->level == 0) {
		in->separators[i + 1] = leaf_separator(type, left, right);
	} else {
		in->separators[i + 1] = inner_of(right)->separators[0];
		inner_of(right)->separators[0] = NULL;
	}
}

/* A split is an empty neighbour that gets its share. */
void inner_split_child(const struct tree_type *type, struct tree_node *n, unsigned i, unsigned want)
{
	ASSERT(want < inner_of(n)->children[i]->len);
	inner_insert(n, i + 1, tree_node_new(inner_of(n)->children[i]->level));
	inner_redistribute(type, n, i, want);
}
