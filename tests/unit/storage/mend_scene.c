/* mend_scene.c: see mend_scene.h. */
#include "mend_scene.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

enum { LAST = 100, SNAPSHOT = 50, LEN = 60, CHUNKS = 20, CHUNK_LEN = 1000 };

const struct mend_scene mend_scenes[MEND_SCENES] = {
	{ .entries = { 60, 80 }, .first = 1, .last = 59, .lost = true },
	{ .snapshot = SNAPSHOT, .entries = { 20, 40 }, .first = 41, .last = LAST },
	{ .snapshot = SNAPSHOT, .snapshot_too = true, .first = 1, .last = LAST },
	{ .snapshot = SNAPSHOT, .trim_to = 40, .snapshot_too = true, .first = 1, .last = 0, .lost = true },
	{ .snapshot = SNAPSHOT, .entries = { 60 }, .snapshot_too = true, .first = 1, .last = 59, .lost = true },
	{ .snapshot = SNAPSHOT, .trim_to = 40, .entries = { 60 }, .first = 41, .last = 59, .lost = true },
};

static const struct storage_hard_state hard = { .term = 3, .voted_for = 8, .commit = 90 };

static struct storage *open_mend(const char *dir)
{
	struct storage_options opts = options_of(dir);

	opts.mend = true;
	opts.no_ballast = true;
	return open_with(&opts);
}

void mend_prepare(const struct mend_scene *s, const char *dir)
{
	struct storage *st = open_mend(dir);
	char *log = path_under(dir, "log"), *snap = snapshot_dir(dir, SNAPSHOT, 1);

	append(st, 1, LAST, 1, LEN);
	if (s->snapshot)
		make_snapshot(st, SNAPSHOT, 1, CHUNKS, CHUNK_LEN);
	ck_ok(storage_commit(st, &(struct storage_batch){ .hard = &hard, .trim_to = s->trim_to }, em));
	storage_close(st);
	for (size_t i = 0; i < 2; i++)
		if (s->entries[i])
			flip_payload(log, s->entries[i], LEN);
	if (s->snapshot_too)
		flip_payload(snap, SNAPSHOT + 7, CHUNK_LEN);
	free(snap);
	free(log);
}

/* What a leader does for a replica that lacks something. */
static void fetch(struct storage *st)
{
	const struct storage_state *s = storage_state(st);

	if (!s->lost.index)
		return;
	if (s->last_index == 0)
		install_snapshot(st, LAST, 1, CHUNKS, CHUNK_LEN, false);
	else
		append(st, s->last_index + 1, LAST, 1, LEN);
}

void mend_live(const char *dir, void (*acknowledged)(void))
{
	struct storage *st = open_mend(dir);

	fetch(st);
	acknowledged();
	storage_close(st);
	storage_close(open_mend(dir));
}

/* ---- what is found ---- */

static struct buf bytes_of(const char *dir, const char *name)
{
	char *path = path_under(dir, name);
	struct buf b = { 0 };
	FILE *f = fopen(path, "r");

	ck_assert_msg(f != NULL, "no %s", path);
	do
		buf_reserve(&b, 1 << 16);
	while ((b.len += fread(b.ptr + b.len, 1, 1 << 16, f)) && !feof(f));
	fclose(f);
	free(path);
	return b;
}

/* (G3) */
static void check_kept(const char *dir, const char *damaged, const char *as, const char *name)
{
	struct buf kept = bytes_of(dir, as), was = bytes_of(damaged, name);

	ck_assert_msg(slice_eq(buf_view(&kept), buf_view(&was)), "%s is not what was damaged", as);
	buf_free(&kept);
	buf_free(&was);
}

static void check_lacking(const struct mend_scene *s, const struct storage_state *now, const char *dir, const char *damaged)
{
	ck_assert(s->lost);
	ck_assert_uint_eq(now->lost.index, LAST);
	ck_assert_uint_eq(now->lost.term, 1);
	ck_assert_uint_eq(now->first_index, s->first);
	ck_assert_uint_eq(now->last_index, s->last);
	ck_assert(now->has_snapshot == (s->snapshot && !s->snapshot_too));
	check_kept(dir, damaged, "damaged/log.mdb", "log/data.mdb");
	if (s->snapshot_too)
		check_kept(dir, damaged, "damaged/snapshot.mdb", "snap-00000000000000000050-00000000000000000001/data.mdb");
}

static void check_all_there(const struct mend_scene *s, const struct storage_state *now, const char *dir)
{
	bool installed = s->lost && s->last == 0;

	ck_assert_uint_eq(now->lost.index, 0);
	ck_assert_uint_eq(now->last_index, LAST);
	ck_assert_uint_eq(now->last_term, 1);
	ck_assert_uint_eq(now->first_index, installed ? LAST + 1 : s->first);
	ck_assert(now->has_snapshot == (installed || (s->snapshot && !s->snapshot_too)));
	ck_assert_uint_eq(count_names(dir, "damaged", NULL), 0);
}

bool mend_check_found(const struct mend_scene *s, const char *dir, const char *damaged)
{
	struct storage *st = open_mend(dir);
	const struct storage_state *now = storage_state(st);
	bool lacks = now->lost.index != 0;

	if (lacks)
		check_lacking(s, now, dir, damaged);
	else
		check_all_there(s, now, dir);
	ck_assert_uint_eq(now->hard.term, hard.term);
	ck_assert_uint_eq(now->hard.voted_for, hard.voted_for);
	ck_assert_uint_eq(now->hard.commit, now->snapshot.index > hard.commit ? now->snapshot.index : hard.commit);
	ck_assert_uint_eq(count_names(dir, "log", ".tmp"), 0);
	if (now->first_index <= now->last_index)
		check_entries(st, now->first_index, now->last_index, 1, LEN);
	if (now->has_snapshot)
		check_snapshot(st, now->snapshot.index, 1, CHUNKS, CHUNK_LEN);
	fetch(st);
	storage_close(st);
	return lacks;
}
