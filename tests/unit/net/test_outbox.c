/* test_outbox.c: what waits for a peer, what is dropped, and how it travels. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "net/frame.h"
#include "net/outbox.h"

static void put(struct outbox *o, const char *text, bool bulk, size_t limit)
{
	struct buf b = buf_copy_of(slice_of_str(text));
	outbox_put_take(o, &b, bulk, limit);
	ck_assert_ptr_null(b.ptr);
}

/* The next batch as text: "a,b,c". */
static const char *take(struct outbox *o, size_t max)
{
	static char text[4096];
	struct list items;
	size_t len = 0;
	list_init(&items);
	outbox_take(o, &items, max);
	text[0] = '\0';
	LIST_FOR_EACH(n, &items) {
		const struct outbox_item *item = CONTAINER_OF(n, struct outbox_item, link);
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%.*s", len ? "," : "", (int)item->bytes.len, item->bytes.ptr);
	}
	outbox_items_free(&items);
	return text;
}

START_TEST(outbox__keeps_order_and_puts_bulk_last)
{
	struct outbox o;
	outbox_init(&o);
	ck_assert(outbox_empty(&o));
	put(&o, "bulk", true, 1000);
	put(&o, "a", false, 1000);
	put(&o, "b", false, 1000);
	ck_assert_str_eq(take(&o, 100), "a,b,bulk");
	ck_assert(outbox_empty(&o));
	ck_assert_str_eq(take(&o, 100), "");
	outbox_deinit(&o);
}
END_TEST

START_TEST(outbox__batch_ends_when_it_is_large_enough)
{
	struct outbox o;
	outbox_init(&o);
	for (int i = 0; i < 5; i++)
		put(&o, "four", false, 10000);
	put(&o, "large enough", false, 10000);
	ck_assert_str_eq(take(&o, 9), "four,four,four");
	ck_assert_str_eq(take(&o, 8), "four,four");
	ck_assert_str_eq(take(&o, 1), "large enough");
	outbox_deinit(&o);
}
END_TEST

START_TEST(outbox__bulk_does_not_wait_for_ever)
{
	struct outbox o;
	size_t batches = 1;
	outbox_init(&o);
	put(&o, "bulk", true, 100000);
	for (int i = 0; i < 100; i++)
		put(&o, "full", false, 100000);
	while (!strstr(take(&o, 4), "bulk"))
		batches++;
	ck_assert_uint_eq(batches, OUTBOX_BULK_PATIENCE + 1);
	outbox_deinit(&o);
}
END_TEST

START_TEST(outbox__full_drops_the_oldest)
{
	struct outbox o;
	char text[16];
	outbox_init(&o);
	for (int i = 0; i < 1000; i++) {
		snprintf(text, sizeof(text), "%03d", i);
		put(&o, text, false, 300);
		ck_assert_uint_le(o.normal_bytes, 300);
	}
	ck_assert_str_eq(take(&o, 1000), "996,997,998,999");
	ck_assert_uint_eq(o.dropped, 996);
	ck_assert_uint_eq(o.normal_bytes, 0);
	outbox_deinit(&o);
}
END_TEST

START_TEST(outbox__one_larger_than_the_bound_is_kept)
{
	struct outbox o;
	struct buf large = { .len = 0 };
	outbox_init(&o);
	put(&o, "old", false, 1000);
	buf_reserve(&large, 5000);
	large.len = 5000;
	memset(large.ptr, 'x', large.len);
	outbox_put_take(&o, &large, false, 1000);
	ck_assert_uint_eq(o.dropped, 1);
	ck_assert_uint_ge(o.normal_bytes, 5000);
	put(&o, "new", false, 1000); /* which the next one pushes out */
	ck_assert_str_eq(take(&o, 1000), "new");
	outbox_deinit(&o);
}
END_TEST

START_TEST(outbox__bulk_is_bounded_and_keeps_the_oldest)
{
	static const char *const names[] = { "1", "2", "3", "4", "5", "6" };
	struct outbox o;
	outbox_init(&o);
	for (size_t i = 0; i < 6; i++)
		put(&o, names[i], true, 1000);
	ck_assert_uint_eq(o.dropped, 2);
	for (size_t i = 0; i < OUTBOX_BULK_MAX; i++)
		ck_assert_str_eq(take(&o, 1000), names[i]);
	ck_assert(outbox_empty(&o));
	outbox_deinit(&o);
}
END_TEST

START_TEST(outbox__trims_and_moves)
{
	struct outbox a, b;
	outbox_init(&a);
	outbox_init(&b);
	for (int i = 0; i < 100; i++)
		put(&a, "x", false, 100000);
	put(&a, "bulk", true, 100000);
	put(&a, "last", false, 100000);
	outbox_trim(&a, 100);
	outbox_move(&b, &a);
	ck_assert(outbox_empty(&a));
	ck_assert_uint_eq(a.normal_bytes, 0);
	ck_assert_str_eq(take(&b, 1000), "last,bulk");
	outbox_deinit(&a);
	outbox_deinit(&b);
}
END_TEST

/* ---- frames ---- */

START_TEST(frame__carries_messages_of_all_sizes)
{
	static const size_t sizes[] = { 0, 1, 3, 4095, 4096, 4097, 0, 300000, 7, 5000, 5001, 0 };
	enum { N = sizeof(sizes) / sizeof(sizes[0]) };
	struct list items;
	struct buf scratch = { .len = 0 };
	struct slice rest, m;
	grpc_byte_buffer *bb;
	list_init(&items);
	for (size_t i = 0; i < N; i++) {
		struct outbox_item *item = mem_zalloc(sizeof(*item));
		buf_reserve(&item->bytes, sizes[i]);
		item->bytes.len = sizes[i];
		if (sizes[i])
			memset(item->bytes.ptr, (int)i, sizes[i]);
		list_push_back(&items, &item->link);
	}
	bb = frame_pack_take(&items);
	ck_assert(list_empty(&items));
	ck_assert(rpc_message_view(bb, &scratch, &rest));
	for (size_t i = 0; i < N; i++) {
		ck_assert(frame_next(&rest, &m));
		ck_assert_uint_eq(m.len, sizes[i]);
		for (size_t j = 0; j < m.len; j++)
			ck_assert(m.ptr[j] == i);
	}
	ck_assert(!frame_next(&rest, &m));
	ck_assert_uint_eq(rest.len, 0);
	grpc_byte_buffer_destroy(bb);
	buf_free(&scratch);
}
END_TEST

static const struct {
	const char *what;
	uint8_t bytes[8];
	size_t len;
} damaged[] = {
	{ "half a length", { 1, 0 }, 2 },
	{ "a length without bytes", { 1, 0, 0, 0 }, 4 },
	{ "a byte short", { 3, 0, 0, 0, 'a', 'b' }, 6 },
	{ "the largest length", { 0xff, 0xff, 0xff, 0xff, 'a' }, 5 },
};

START_TEST(frame__damage_is_noticed)
{
	uint8_t *exact = mem_alloc(damaged[_i].len); /* so that reading past it is seen */
	struct slice rest = slice_of(exact, damaged[_i].len), m;
	memcpy(exact, damaged[_i].bytes, damaged[_i].len);
	ck_assert_msg(!frame_next(&rest, &m), "%s", damaged[_i].what);
	ck_assert_uint_eq(rest.len, damaged[_i].len);
	free(exact);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("outbox");
	TCase *c = tcase_create("outbox");
	SRunner *r;
	int failed;
	tcase_add_test(c, outbox__keeps_order_and_puts_bulk_last);
	tcase_add_test(c, outbox__batch_ends_when_it_is_large_enough);
	tcase_add_test(c, outbox__bulk_does_not_wait_for_ever);
	tcase_add_test(c, outbox__full_drops_the_oldest);
	tcase_add_test(c, outbox__one_larger_than_the_bound_is_kept);
	tcase_add_test(c, outbox__bulk_is_bounded_and_keeps_the_oldest);
	tcase_add_test(c, outbox__trims_and_moves);
	tcase_add_test(c, frame__carries_messages_of_all_sizes);
	tcase_add_loop_test(c, frame__damage_is_noticed, 0, sizeof(damaged) / sizeof(damaged[0]));
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
