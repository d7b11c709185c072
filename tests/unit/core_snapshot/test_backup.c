/* A state as a backup file and back: cut anywhere, damaged anywhere. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "core/alarm/alarm.h"
#include "core/kv/kv.h"
#include "core/restore.h"
#include "core/snapshot/backup.h"
#include "core/store/store.h"

#define CELL UINT64_C(0xce11)

static void put(struct store *s, const char *key, const char *value)
{
	store_txn_begin(s);
	store_put(s, slice_of_str(key), slice_of_str(value), /*lease=*/0, NULL);
	store_txn_end(s);
}

static void fill(struct state *st, int keys)
{
	struct store *s;
	char key[32];

	state_init(st);
	s = store_new(st);
	for (int i = 0; i < keys; i++) {
		snprintf(key, sizeof(key), "/backup/%05d", i);
		put(s, key, "some value that takes a little room");
	}
	store_free(s);
	st->applied = (struct entry_id){ .index = 77, .term = 3 };
}

static struct buf written(const struct state *st)
{
	struct backup_writer *w = backup_writer_new(st, CELL);
	struct buf file = { 0 };

	while (backup_writer_next(w, &file))
		;
	backup_writer_free(w);
	return file;
}

/* In pieces of `piece` bytes. On ERR_OK the state is dropped again, and its hash told. */
static enum err read_back(struct slice file, size_t piece, uint64_t *ret_hash)
{
	struct backup_reader *r = backup_reader_new();
	struct backup_info info;
	struct state st;
	enum err e = ERR_OK;

	while (file.len > 0 && !e) {
		size_t n = file.len < piece ? file.len : piece;

		e = backup_reader_feed(r, slice_of(file.ptr, n));
		file = slice_of(file.ptr + n, file.len - n);
	}
	if (!e)
		e = backup_reader_finish(r, &st, &info);
	if (e) {
		ck_assert_uint_gt(strlen(backup_reader_why(r)), 10);
	} else {
		*ret_hash = state_hash(&st);
		ck_assert_uint_eq(info.state_hash, *ret_hash);
		ck_assert_uint_eq(info.cell_id, CELL);
		state_deinit(&st);
	}
	backup_reader_free(r);
	return e;
}

START_TEST(backup__comes_back_as_it_was_however_it_is_cut)
{
	static const int sizes[] = { 0, 1, 10, 9000 };
	static const size_t pieces[] = { 1, 7, 512, 100000, SIZE_MAX };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct state st;
		struct buf file;
		uint64_t hash = 0;

		fill(&st, sizes[i]);
		file = written(&st);
		ck_assert_uint_eq(file.len % BACKUP_BLOCK, SHA256_BYTES);
		ck_assert_uint_eq(file.len, backup_size(&st, CELL));
		for (size_t p = 0; p < sizeof(pieces) / sizeof(*pieces); p++) {
			ck_assert_int_eq(read_back(buf_view(&file), pieces[p], &hash), ERR_OK);
			ck_assert_uint_eq(hash, state_hash(&st));
		}
		buf_free(&file);
		state_deinit(&st);
	}
}
END_TEST

START_TEST(backup__damage_anywhere_is_found)
{
	struct state st;
	struct buf file;
	uint64_t hash;

	fill(&st, 20);
	file = written(&st);
	for (size_t at = 0; at < file.len; at++) {
		file.ptr[at] ^= (uint8_t)(1u << (at % 8));
		ck_assert_int_ne(read_back(buf_view(&file), SIZE_MAX, &hash), ERR_OK);
		file.ptr[at] ^= (uint8_t)(1u << (at % 8));
	}
	for (size_t len = 0; len < file.len; len++)
		ck_assert_int_ne(read_back(slice_of(file.ptr, len), SIZE_MAX, &hash), ERR_OK);
	buf_append_byte(&file, 0);
	ck_assert_int_eq(read_back(buf_view(&file), SIZE_MAX, &hash), ERR_CORRUPT);
	buf_free(&file);
	state_deinit(&st);
}
END_TEST

START_TEST(restore__equal_backups_and_members_give_equal_states)
{
	const char *url = "http://10.0.0.1:2380";
	struct member_spec member = { .name = "a", .peer_urls = &url, .peer_urls_len = 1 };
	struct state st[2];

	for (size_t i = 0; i < 2; i++) {
		fill(&st[i], 50);
		restore_new_cell(&st[i], &member, 1, "token");
		ck_assert_uint_eq(st[i].members.len, 1);
		ck_assert_uint_eq(st[i].restored, 1);
		ck_assert_int_eq(st[i].compact_revision, st[i].revision);
	}
	ck_assert_uint_eq(state_hash(&st[0]), state_hash(&st[1]));
	state_deinit(&st[0]);
	state_deinit(&st[1]);
}
END_TEST

/* As a cell has it: a lease that holds a lock, and one key without a lease. */
static void fill_with_lease(struct state *st)
{
	struct arena arena;
	struct kv_env env = { .state = st, .arena = &arena };
	int64_t ttl_s;

	state_init(st);
	arena_init(&arena);
	env.store = store_new(st);
	env.lessor = lessor_new(st, 1);
	env.locks = locks_new(st);
	env.once = once_new(st);
	kv_attach(&env);
	kv_rebuild(&env);
	ck_assert_int_eq(lease_grant(env.lessor, 0x10, 60, 0, &ttl_s), ERR_OK);
	store_txn_begin(env.store);
	store_put(env.store, slice_of_str("l/10"), slice_of_str(""), /*lease=*/0x10, NULL);
	store_txn_end(env.store);
	put(env.store, "plain", "v");
	once_free(env.once);
	locks_free(env.locks);
	lessor_free(env.lessor);
	store_free(env.store);
	arena_deinit(&arena);
}

START_TEST(restore__ends_leases_and_alarms_and_forgets_what_was_before)
{
	const char *url = "http://10.0.0.1:2380";
	struct member_spec member = { .name = "a", .peer_urls = &url, .peer_urls_len = 1 };
	struct state st;
	struct store *s;
	revision before;

	fill_with_lease(&st);
	ck_assert_int_eq(alarm_raise(&st, ALARM_NOSPACE, 5, false), ERR_OK);
	ck_assert_uint_eq(st.leases.len, 1);
	ck_assert_uint_eq(st.contenders.len, 1);
	before = st.revision;
	restore_new_cell(&st, &member, 1, "token");
	ck_assert_uint_eq(st.leases.len, 0);
	ck_assert_uint_eq(st.contenders.len, 0);
	ck_assert_uint_eq(st.alarms.len, 0);
	s = store_new(&st);
	ck_assert_ptr_null(store_get(s, slice_of_str("l/10"), 0)); /* gone with its lease */
	ck_assert_ptr_nonnull(store_get(s, slice_of_str("plain"), 0));
	store_free(s);
	ck_assert_int_gt(st.revision, before);
	ck_assert_int_eq(st.compact_revision, st.revision);
	state_deinit(&st);
}
END_TEST

/* FIPS 180-4, and lengths around a block's end against one call. */
START_TEST(sha256__known_answers)
{
	static const struct {
		const char *text, *hex;
	} known[] = {
		{ "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
		{ "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
		{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
	};
	uint8_t data[300], whole[SHA256_BYTES], parts[SHA256_BYTES];
	struct sha256 s;
	char hex[2 * SHA256_BYTES + 1];

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		sha256_init(&s);
		sha256_add(&s, slice_of_str(known[i].text));
		sha256_end(&s, whole);
		for (size_t b = 0; b < SHA256_BYTES; b++)
			snprintf(hex + 2 * b, 3, "%02x", whole[b]);
		ck_assert_str_eq(hex, known[i].hex);
	}
	memset(data, 'x', sizeof(data));
	for (size_t len = 0; len < sizeof(data); len++) {
		sha256_init(&s);
		sha256_add(&s, slice_of(data, len));
		sha256_end(&s, whole);
		sha256_init(&s);
		for (size_t at = 0; at < len; at += 13)
			sha256_add(&s, slice_of(data + at, len - at < 13 ? len - at : 13));
		sha256_end(&s, parts);
		ck_assert_mem_eq(whole, parts, SHA256_BYTES);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("backup");
	TCase *tc = tcase_create("backup");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, backup__comes_back_as_it_was_however_it_is_cut);
	tcase_add_test(tc, backup__damage_anywhere_is_found);
	tcase_add_test(tc, restore__equal_backups_and_members_give_equal_states);
	tcase_add_test(tc, restore__ends_leases_and_alarms_and_forgets_what_was_before);
	tcase_add_test(tc, sha256__known_answers);
	tcase_set_timeout(tc, 120);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
