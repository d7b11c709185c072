/* harness.h: what the storage tests share: a directory for each test, entries whose bytes follow from index and term,
 * and ways to damage what is on disk. */
#ifndef HOLDFAST_TEST_STORAGE_HARNESS_H
#define HOLDFAST_TEST_STORAGE_HARNESS_H

#include <check.h>

#include "base/mem.h"
#include "storage/storage.h"

#define CELL UINT64_C(0xce11)
#define MEMBER UINT64_C(0x3e3b)

#define ck_ok(call)                                                                                   \
	do {                                                                                          \
		struct errmsg em_ = { .text = "" };                                                   \
		struct errmsg *em = &em_;                                                             \
		enum err e_ = (call);                                                                 \
		ck_assert_msg(e_ == ERR_OK, "%s: error %d: %s", #call, (int)e_, em_.text);            \
	} while (0)

/* The error, and that it explains itself with these words. */
#define ck_fails(call, want, words)                                                                   \
	do {                                                                                          \
		struct errmsg em_ = { .text = "" };                                                   \
		struct errmsg *em = &em_;                                                             \
		enum err e_ = (call);                                                                 \
		ck_assert_msg(e_ == (want), "%s: error %d, not %s: %s", #call, (int)e_, #want, em_.text); \
		ck_assert_msg(strstr(em_.text, (words)) != NULL, "'%s' not in: %s", (words), em_.text); \
	} while (0)

void harness_begin(void);          /* one root for all tests */
void harness_end(void);            /* removes it */
char *test_dir(const char *name);  /* a path of its own for the running test, nothing there yet; free() it */
char *path_under(const char *dir, const char *name); /* free() it */
void remove_tree(const char *path);
size_t count_names(const char *dir, const char *prefix, const char *suffix); /* suffix NULL: any */

struct storage_options options_of(const char *dir); /* small ballast, usual identity */
struct storage *open_ok(const char *dir);
struct storage *open_with(const struct storage_options *opts);

/* payload of entry (index, term): deterministic, of `len` bytes, unlike any other */
struct buf payload_of(uint64_t index, uint64_t term, size_t len);
void append(struct storage *st, uint64_t from, uint64_t to, uint64_t term, size_t len);
enum err try_append(struct storage *st, uint64_t from, uint64_t to, uint64_t term, size_t len, struct errmsg *em);
void check_entries(struct storage *st, uint64_t from, uint64_t to, uint64_t term, size_t len);
void check_log(const struct storage *st, uint64_t first, uint64_t last, uint64_t last_term); /* as of open */

struct storage_snapshot_meta meta_of(uint64_t index, uint64_t term, uint64_t chunks, size_t chunk_len);
struct storage_snapshot_writer *write_chunks(struct storage *st, uint64_t index, uint64_t term, uint64_t chunks,
					     size_t chunk_len);
void make_snapshot(struct storage *st, uint64_t index, uint64_t term, uint64_t chunks, size_t chunk_len);
void install_snapshot(struct storage *st, uint64_t index, uint64_t term, uint64_t chunks, size_t chunk_len, bool keep_log);
void check_snapshot(struct storage *st, uint64_t index, uint64_t term, uint64_t chunks, size_t chunk_len);
char *snapshot_dir(const char *dir, uint64_t index, uint64_t term); /* free() it */

void copy_tree(const char *from, const char *to); /* files, and directories of files */

/* Flips one bit of every place where `needle` stands in the file; how many there were. */
size_t flip_in_file(const char *path, struct slice needle);
/* Of the entry or chunk of term 1 that stands in the environment `dir`. */
void flip_payload(const char *dir, uint64_t index, size_t len);

TCase *case_open(void);
TCase *case_log(void);
TCase *case_log_misuse(void);
TCase *case_snapshot(void);
TCase *case_damage(void);
TCase *case_mend(void);
TCase *case_space(void);
TCase *case_crash(void);
TCase *case_part(void);

#endif
