/* decoder.c: from chunks back to a state, believing nothing.
 *
 * The bytes may come from a peer or from a disk that lies. Every length is held against what is there before it is used; every record
 * goes through its type's decode; keys must rise, which rules out duplicates too; and in the end the hash over all that was read must
 * be the one in the head. Only then does the state leave this file. What a newer release wrote (a section, a record or a chunk of a
 * version we do not know) is refused whole: to skip it would be to lose it. */
#include "base/mem.h"
#include "core/snapshot/format.h"

struct snapshot_decoder {
	struct state state;
	struct tree *trees[STATE_TREES_MAX];
	size_t trees_len;
	uint64_t cell_id;
	struct snapshot_head head;
	bool has_head;
	bool failed;
	uint32_t section;         /* of the last group; SECTION_HEAD at first */
	struct tree_record *last; /* of that section; lent by its tree */
};

struct snapshot_decoder *snapshot_decoder_new(uint64_t cell_id)
{
	struct snapshot_decoder *d = mem_zalloc(sizeof(*d));

	state_init(&d->state);
	d->trees_len = state_trees(&d->state, d->trees);
	d->cell_id = cell_id;
	return d;
}

void snapshot_decoder_free(struct snapshot_decoder *d)
{
	if (!d)
		return;
	state_deinit(&d->state);
	free(d);
}

/* ---- bytes ---- */

/* In its shortest form; ERR_CORRUPT otherwise. */
static enum err take_varint(struct slice *rest, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < 10 && i < rest->len; i++) {
		uint8_t byte = rest->ptr[i];

		if (i == 9 && byte > 1)
			return ERR_CORRUPT;
		v |= (uint64_t)(byte & 0x7f) << (7 * i);
		if (byte & 0x80)
			continue;
		if (byte == 0 && i > 0)
			return ERR_CORRUPT;
		*rest = slice_of(rest->ptr + i + 1, rest->len - i - 1);
		*ret = v;
		return ERR_OK;
	}
	return ERR_CORRUPT;
}

static enum err take_record(struct slice *rest, struct slice *ret)
{
	uint64_t len;
	enum err e = take_varint(rest, &len);

	if (e)
		return e;
	if (len > rest->len)
		return ERR_CORRUPT;
	*ret = slice_of(rest->ptr, (size_t)len);
	*rest = slice_of(rest->ptr + len, rest->len - (size_t)len);
	return ERR_OK;
}

struct group {
	uint64_t section, version, count;
};

static enum err take_group(struct slice *rest, struct group *ret)
{
	enum err e = take_varint(rest, &ret->section);

	if (!e)
		e = take_varint(rest, &ret->version);
	if (!e)
		e = take_varint(rest, &ret->count);
	if (!e && (ret->count == 0 || ret->count > rest->len)) /* a record takes a byte at least */
		e = ERR_CORRUPT;
	return e;
}

/* ---- groups ---- */

static enum err read_head(struct snapshot_decoder *d, struct slice *rest)
{
	struct slice bytes;
	struct group g;
	enum err e = take_group(rest, &g);

	if (e)
		return e;
	if (g.section != SECTION_HEAD || g.count != 1)
		return ERR_CORRUPT;
	if (g.version != HEAD_VERSION)
		return ERR_WRONG_VERSION;
	e = take_record(rest, &bytes);
	if (!e)
		e = snapshot_head_decode(bytes, &d->head);
	if (e)
		return e;
	if (d->head.cell_id != d->cell_id)
		return ERR_WRONG_CELL;
	d->has_head = true;
	d->section = SECTION_HEAD;
	return ERR_OK;
}

static struct tree *find_tree(struct snapshot_decoder *d, uint64_t section)
{
	for (size_t i = 0; i < d->trees_len; i++)
		if (d->trees[i]->type->section == section)
			return d->trees[i];
	return NULL;
}

static enum err read_record(struct snapshot_decoder *d, struct tree *t, struct slice *rest)
{
	struct tree_record *r;
	struct slice bytes;
	enum err e = take_record(rest, &bytes);

	if (!e)
		e = t->type->decode(bytes, &r);
	if (e)
		return e;
	if (d->last && slice_cmp(t->type->key(d->last), t->type->key(r)) >= 0) {
		tree_record_unref(t->type, r);
		return ERR_CORRUPT;
	}
	tree_put_take(t, r);
	d->last = r;
	return ERR_OK;
}

/* first_in_chunk: only there may a section of the chunk before go on. */
static enum err read_group(struct snapshot_decoder *d, struct slice *rest, bool first_in_chunk)
{
	struct group g;
	struct tree *t;
	enum err e = take_group(rest, &g);

	if (e)
		return e;
	t = find_tree(d, g.section);
	if (!t)
		return g.section <= SECTION_HEAD ? ERR_CORRUPT : ERR_WRONG_VERSION;
	if (g.version != t->type->version)
		return ERR_WRONG_VERSION;
	if (g.section < d->section || (g.section == d->section && !first_in_chunk))
		return ERR_CORRUPT;
	if (g.section > d->section)
		d->last = NULL;
	d->section = (uint32_t)g.section;
	for (uint64_t i = 0; i < g.count && !e; i++)
		e = read_record(d, t, rest);
	return e;
}

static enum err read_chunk(struct snapshot_decoder *d, struct slice rest)
{
	bool first = d->has_head;
	enum err e = ERR_OK;

	if (rest.len < 2) /* there is no chunk of nothing */
		return ERR_CORRUPT;
	if (rest.ptr[0] != CHUNK_VERSION)
		return ERR_WRONG_VERSION;
	rest = slice_of(rest.ptr + 1, rest.len - 1);
	if (!d->has_head)
		e = read_head(d, &rest);
	for (; !e && rest.len > 0; first = false)
		e = read_group(d, &rest, first);
	return e;
}

enum err snapshot_decoder_feed(struct snapshot_decoder *d, struct slice chunk)
{
	enum err e;

	ASSERT(!d->failed);
	e = read_chunk(d, chunk);
	d->failed = e != ERR_OK;
	return e;
}

enum err snapshot_decoder_finish(struct snapshot_decoder *d, struct state *ret)
{
	ASSERT(!d->failed);
	d->state.applied = d->head.applied;
	d->state.revision = d->head.revision;
	d->state.compact_revision = d->head.compact_revision;
	d->state.restored = d->head.restored;
	if (!d->has_head || state_hash(&d->state) != d->head.state_hash) {
		d->failed = true;
		return ERR_CORRUPT;
	}
	*ret = d->state;
	memset(&d->state, 0, sizeof(d->state));
	d->failed = true; /* nothing more may be fed */
	return ERR_OK;
}
