/* node.h: the nodes of a tree; for the files of this folder alone. node.c says why they are as they are. */
#ifndef HOLDFAST_CORE_TREE_NODE_H
#define HOLDFAST_CORE_TREE_NODE_H

#include "core/tree/tree.h"

enum {
	NODE_SLOTS = 32,                   /* one is spare: a node that fills it is split before the call returns */
	NODE_MAX = NODE_SLOTS - 1,
	NODE_MIN = NODE_SLOTS / 4,         /* of every node but the root */
	NODE_MERGE_MAX = NODE_SLOTS * 3 / 4, /* neighbours that hold no more than this together become one */
	NODE_DEPTH_MAX = 24,               /* as tree_cursor has room for; 8^24 records do not fit any machine */
};

/* Key bytes of its own, shared by copies of a node. */
struct tree_separator {
	uint32_t refs;
	uint32_t len;
	uint8_t bytes[];
};

struct tree_node {
	uint32_t refs;  /* owner's thread only; readers of views look at the rest */
	uint16_t len;   /* records or children */
	uint16_t level; /* 0: a leaf */
};

struct tree_leaf {
	struct tree_node node;
	struct tree_record *records[NODE_SLOTS]; /* by key */
};

struct tree_inner {
	struct tree_node node;
	struct tree_node *children[NODE_SLOTS];
	uint64_t counts[NODE_SLOTS];                   /* records below each child */
	struct tree_separator *separators[NODE_SLOTS]; /* [i] <= every key below child i; [0] is NULL: no bound of its own */
};

static inline struct tree_leaf *leaf_of(struct tree_node *n)
{
	return (struct tree_leaf *)n;
}

static inline struct tree_inner *inner_of(struct tree_node *n)
{
	return (struct tree_inner *)n;
}

static inline struct slice separator_view(const struct tree_separator *s)
{
	return slice_of(s->bytes, s->len);
}

struct tree_node *tree_node_new(unsigned level);                                /* empty, one reference */
void node_unref(const struct tree_type *type, struct tree_node *n);        /* NULL is fine; frees what nobody else holds */
bool node_drop_some(const struct tree_type *type, struct tree_node **root, size_t *budget); /* node_unref in slices: see tree_drop_some */
struct tree_node *node_own(struct tree_node *n);                           /* n itself, or a copy in exchange for this reference to it */
uint64_t node_count(struct tree_node *n);                                  /* records below */
unsigned node_find_child(struct tree_node *n, struct slice key);           /* the one child that may hold key */
/* The first with key >= key, which may be len; found: it is that very key. */
unsigned node_find_record(const struct tree_type *type, struct tree_node *n, struct slice key, bool *ret_found);

void leaf_insert(struct tree_node *n, unsigned at, struct tree_record *r);
void leaf_remove(struct tree_node *n, unsigned at);                        /* hands its reference to the caller */
void inner_append(struct tree_node *n, struct tree_node *child);           /* for a new root */

/* Of children i and i + 1 of n, all three owned: afterwards the left one has `want` slots in use, and the right one the rest; with no
 * rest it is freed and leaves n. */
void inner_redistribute(const struct tree_type *type, struct tree_node *n, unsigned i, unsigned want);
/* Splits the full child i of n; the left part keeps `want`. n gains a slot. */
void inner_split_child(const struct tree_type *type, struct tree_node *n, unsigned i, unsigned want);

#endif
