/* tree.h: an ordered table of records whose nodes are copied on write, so that a view of the whole costs O(1).
 *
 * A B+tree by key bytes (slice_cmp order). Nodes and records are counted references. The owner's thread (the core's) changes the
 * live tree and opens and closes views; any other thread may read an open view, since nothing reachable from it changes: a change to
 * the live tree copies what the view shares. Counts are touched by the owner's thread alone, which frees all.
 *
 *   (T1) what is reachable from an open view is never written, not even a reference count by a reader.
 *   (T2) a node or record with one reference is reachable from one tree only, and may be changed in place by the owner.
 */
#ifndef HOLDFAST_CORE_TREE_H
#define HOLDFAST_CORE_TREE_H

#include "core/types.h"

/* First member of every record. */
struct tree_record {
	uint32_t refs;
};

struct tree_type {
	uint32_t section; /* the snapshot section that these records make up; see snapshot.h */
	uint32_t version; /* of the record's encoding */
	struct slice (*key)(const struct tree_record *r);          /* lent by the record */
	struct tree_record *(*clone)(const struct tree_record *r); /* an equal record with one reference, for tree_edit */
	void (*free)(struct tree_record *r);                       /* the last reference is gone */
	uint64_t (*hash)(const struct tree_record *r);             /* of all that is replicated in it; cheap (cached by the record if need be) */
	void (*encode)(const struct tree_record *r, struct buf *out);                     /* canonical: equal records, equal bytes */
	enum err (*decode)(struct slice bytes, struct tree_record **ret);                 /* one reference; ERR_CORRUPT */
};

struct tree {
	const struct tree_type *type;
	struct tree_node *root;
	uint64_t len;  /* records */
	uint64_t hash; /* sum of the records' hashes, kept up to date by put, remove and edit */
};

void tree_record_unref(const struct tree_type *type, struct tree_record *r); /* drops one reference; the last one frees */

void tree_init(struct tree *t, const struct tree_type *type);
void tree_deinit(struct tree *t); /* drops this tree's references; views stay whole */

struct tree_record *tree_get(const struct tree *t, struct slice key); /* lent until the next change; NULL when absent */
void tree_put_take(struct tree *t, struct tree_record *r);            /* takes one reference; replaces a record with the same key */
bool tree_remove(struct tree *t, struct slice key);                   /* whether it was there */
/* A record that may be changed in place (its key may not), until the next call on this tree; the path to it has been copied where a
 * view shares it. NULL when absent. Must be followed by tree_edit_end. */
struct tree_record *tree_edit_begin(struct tree *t, struct slice key);
void tree_edit_end(struct tree *t, struct tree_record *r);

/* Views. tree_view shares everything in O(1). tree_deinit on the copy closes it (owner's thread only). */
struct tree tree_view(const struct tree *t);

/* The same in slices: drops about *budget references and takes them off it. Whether all are gone; else the tree is good for nothing but this call. */
bool tree_drop_some(struct tree *t, size_t *budget);

/* Cursors: valid until the tree changes. Any thread, on a view. */
struct tree_cursor {
	const struct tree *tree;
	struct tree_node *path[24];
	uint16_t at[24];
	uint8_t depth; /* 0: at no record */
};
struct tree_record *tree_seek(struct tree_cursor *c, const struct tree *t, struct slice key); /* first record with key >= key; NULL at the end */
struct tree_record *tree_seek_before(struct tree_cursor *c, const struct tree *t, struct slice key); /* last record with key < key */
struct tree_record *tree_first(struct tree_cursor *c, const struct tree *t);
struct tree_record *tree_last(struct tree_cursor *c, const struct tree *t);
struct tree_record *tree_next(struct tree_cursor *c);
struct tree_record *tree_prev(struct tree_cursor *c);
/* Records with lo <= key < hi, counted in O(log n) (inner nodes keep counts). has_hi false: no upper bound. */
uint64_t tree_count(const struct tree *t, struct slice lo, struct slice hi, bool has_hi);
void tree_check(const struct tree *t); /* asserts order, fill, counts, hash */

#endif
