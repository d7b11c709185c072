/* harness.c: see harness.h. Everything lies under one directory in $TMPDIR, which the end of the run removes. */
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"

static char root[512];

void harness_begin(void)
{
	const char *tmp = getenv("TMPDIR");
	snprintf(root, sizeof root, "%s/holdfast-storage-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	ASSERT(mkdtemp(root) != NULL);
}

void harness_end(void)
{
	remove_tree(root);
}

char *test_dir(const char *name)
{
	return path_under(root, name);
}

char *path_under(const char *dir, const char *name)
{
	struct buf b = { 0 };
	buf_printf(&b, "%s/%s", dir, name);
	buf_append_byte(&b, '\0');
	return (char *)b.ptr;
}

static int remove_one(const char *path, const struct stat *sb, int type, struct FTW *at)
{
	(void)sb, (void)type, (void)at;
	if (remove(path) == 0)
		return 0;
	/* a failed test may have left its small disk mounted */
	return errno == EBUSY && umount2(path, MNT_DETACH) == 0 ? remove(path) : -1;
}

void remove_tree(const char *path)
{
	(void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void copy_file(const char *from, const char *to)
{
	uint8_t block[4096];
	FILE *in = fopen(from, "r"), *out = fopen(to, "w");
	size_t n;
	ck_assert(in && out);
	while ((n = fread(block, 1, sizeof block, in)) > 0)
		ck_assert_uint_eq(fwrite(block, 1, n, out), n);
	ck_assert_int_eq(fclose(in), 0);
	ck_assert_int_eq(fclose(out), 0);
}

void copy_tree(const char *from, const char *to)
{
	DIR *d = opendir(from);
	ck_assert_ptr_nonnull(d);
	ck_assert_int_eq(mkdir(to, 0700), 0);
	for (struct dirent *de; (de = readdir(d)) != NULL;) {
		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		char *a = path_under(from, de->d_name), *b = path_under(to, de->d_name);
		if (de->d_type == DT_DIR)
			copy_tree(a, b);
		else
			copy_file(a, b);
		free(a);
		free(b);
	}
	closedir(d);
}

static bool ends_with(const char *s, const char *suffix)
{
	size_t len = strlen(s), n = strlen(suffix);
	return len >= n && strcmp(s + len - n, suffix) == 0;
}

size_t count_names(const char *dir, const char *prefix, const char *suffix)
{
	size_t count = 0;
	DIR *d = opendir(dir);
	ck_assert_ptr_nonnull(d);
	for (struct dirent *de; (de = readdir(d)) != NULL;)
		count += strncmp(de->d_name, prefix, strlen(prefix)) == 0 && (!suffix || ends_with(de->d_name, suffix));
	closedir(d);
	return count;
}

struct storage_options options_of(const char *dir)
{
	return (struct storage_options){
		.dir = dir,
		.identity = { .cell_id = CELL,
			      .member_id = MEMBER,
			      .data_dir_id = 77,
			      .name = slice_of_str("m1"),
			      .cell_token = slice_of_str("token-of-the-cell") },
		.ballast_bytes = 1 << 20,
	};
}

struct storage *open_with(const struct storage_options *opts)
{
	struct storage *st = NULL;
	ck_ok(storage_open(opts, &st, em));
	return st;
}

struct storage *open_ok(const char *dir)
{
	struct storage_options opts = options_of(dir);
	return open_with(&opts);
}

/* ---- entries ---- */

struct buf payload_of(uint64_t index, uint64_t term, size_t len)
{
	struct buf b = { 0 };
	struct rng r;
	rng_init(&r, index * 1000003 + term);
	buf_reserve(&b, len + 8);
	while (b.len < len) {
		uint64_t v = rng_next(&r);
		buf_append(&b, &v, len - b.len < 8 ? len - b.len : 8);
	}
	return b;
}

enum err try_append(struct storage *st, uint64_t from, uint64_t to, uint64_t term, size_t len, struct errmsg *em)
{
	size_t n = (size_t)(to + 1 - from);
	struct storage_entry *entries = mem_zalloc(n * sizeof *entries);
	struct buf *payloads = mem_zalloc(n * sizeof *payloads);
	for (size_t i = 0; i < n; i++) {
		payloads[i] = payload_of(from + i, term, len);
		entries[i] = (struct storage_entry){ .index = from + i,
						     .term = term,
						     .kind = (uint8_t)(from + i),
						     .payload = buf_view(&payloads[i]) };
	}
	enum err e = storage_commit(st, &(struct storage_batch){ .entries = entries, .entries_len = n }, em);
	for (size_t i = 0; i < n; i++)
		buf_free(&payloads[i]);
	free(payloads);
	free(entries);
	return e;
}

void append(struct storage *st, uint64_t from, uint64_t to, uint64_t term, size_t len)
{
	ck_ok(try_append(st, from, to, term, len, em));
}

void check_entries(struct storage *st, uint64_t from, uint64_t to, uint64_t term, size_t len)
{
	for (uint64_t at = from; at <= to;) {
		struct storage_read_result r;
		ck_ok(storage_read(st, at, to, 1 << 20, &r, em));
		ck_assert_uint_gt(r.entries_len, 0);
		for (size_t i = 0; i < r.entries_len; i++, at++) {
			struct buf want = payload_of(at, term, len);
			ck_assert_uint_eq(r.entries[i].index, at);
			ck_assert_uint_eq(r.entries[i].term, term);
			ck_assert_uint_eq(r.entries[i].kind, (uint8_t)at);
			ck_assert(slice_eq(r.entries[i].payload, buf_view(&want)));
			buf_free(&want);
		}
		storage_read_result_free(&r);
	}
}

void check_log(const struct storage *st, uint64_t first, uint64_t last, uint64_t last_term)
{
	const struct storage_state *s = storage_state(st);
	ck_assert_uint_eq(s->first_index, first);
	ck_assert_uint_eq(s->last_index, last);
	ck_assert_uint_eq(s->last_term, last_term);
}

/* ---- snapshots ---- */

/* Chunk n of a snapshot is what entry (index + n, term) would be. */
struct storage_snapshot_meta meta_of(uint64_t index, uint64_t term, uint64_t chunks, size_t chunk_len)
{
	return (struct storage_snapshot_meta){ .index = index,
					       .term = term,
					       .chunks = chunks,
					       .bytes = chunks * chunk_len,
					       .state_hash = index ^ 0xabcdef,
					       .config = slice_of_str("members of the cell") };
}

struct storage_snapshot_writer *write_chunks(struct storage *st, uint64_t index, uint64_t term, uint64_t chunks,
					     size_t chunk_len)
{
	struct storage_snapshot_writer *w = NULL;
	ck_ok(storage_snapshot_create(st, index, term, &w, em));
	for (uint64_t n = 0; n < chunks; n++) {
		struct buf chunk = payload_of(index + n, term, chunk_len);
		ck_ok(storage_snapshot_write(w, n, buf_view(&chunk), em));
		buf_free(&chunk);
	}
	ck_assert_uint_eq(storage_snapshot_next(w), chunks);
	return w;
}

void make_snapshot(struct storage *st, uint64_t index, uint64_t term, uint64_t chunks, size_t chunk_len)
{
	struct storage_snapshot_writer *w = write_chunks(st, index, term, chunks, chunk_len);
	struct storage_snapshot_meta meta = meta_of(index, term, chunks, chunk_len);
	ck_ok(storage_snapshot_finish(w, &meta, em));
}

void install_snapshot(struct storage *st, uint64_t index, uint64_t term, uint64_t chunks, size_t chunk_len, bool keep_log)
{
	struct storage_snapshot_writer *w = write_chunks(st, index, term, chunks, chunk_len);
	struct storage_snapshot_meta meta = meta_of(index, term, chunks, chunk_len);
	ck_ok(storage_snapshot_install_finish(w, &meta, keep_log, em));
}

void check_snapshot(struct storage *st, uint64_t index, uint64_t term, uint64_t chunks, size_t chunk_len)
{
	struct storage_snapshot_reader *r = NULL;
	struct storage_snapshot_meta want = meta_of(index, term, chunks, chunk_len);
	struct buf chunk = { 0 };
	ck_ok(storage_snapshot_open(st, &r, em));
	const struct storage_snapshot_meta *m = storage_snapshot_reader_meta(r);
	ck_assert_uint_eq(m->index, index);
	ck_assert_uint_eq(m->term, term);
	ck_assert_uint_eq(m->chunks, chunks);
	ck_assert_uint_eq(m->bytes, want.bytes);
	ck_assert_uint_eq(m->state_hash, want.state_hash);
	ck_assert(slice_eq(m->config, want.config));
	for (uint64_t n = 0; n < chunks; n++) {
		struct buf expected = payload_of(index + n, term, chunk_len);
		ck_ok(storage_snapshot_read(r, n, &chunk, em));
		ck_assert(slice_eq(buf_view(&chunk), buf_view(&expected)));
		buf_free(&expected);
	}
	ck_fails(storage_snapshot_read(r, chunks, &chunk, em), ERR_NOT_FOUND, "no chunk");
	buf_free(&chunk);
	storage_snapshot_close(r);
}

char *snapshot_dir(const char *dir, uint64_t index, uint64_t term)
{
	char name[80];
	snprintf(name, sizeof name, "snap-%020" PRIu64 "-%020" PRIu64, index, term);
	return path_under(dir, name);
}

/* ---- damage ---- */

size_t flip_in_file(const char *path, struct slice needle)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat sb;
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &sb), 0);
	size_t size = (size_t)sb.st_size, found = 0;
	uint8_t *all = mem_alloc(size);
	ck_assert_int_eq(pread(fd, all, size, 0), sb.st_size);
	for (uint8_t *at = all; (at = memmem(at, size - (size_t)(at - all), needle.ptr, needle.len)) != NULL; found++) {
		at += needle.len - 1;
		*at ^= 0x10;
		ck_assert_int_eq(pwrite(fd, at, 1, at - all), 1);
	}
	free(all);
	close(fd);
	return found;
}

void flip_payload(const char *dir, uint64_t index, size_t len)
{
	struct buf payload = payload_of(index, 1, len);
	char *file = path_under(dir, "data.mdb");
	ck_assert_uint_gt(flip_in_file(file, buf_view(&payload)), 0);
	buf_free(&payload);
	free(file);
}
