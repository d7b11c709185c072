#include "base/pbw.h"

#include <stdlib.h>

#include "base/mem.h"
#include "nested.pb-c.h"
#include "suites.h"

static void assert_bytes(const struct buf *b, const char *want, size_t len)
{
	ck_assert(slice_eq(buf_view(b), slice_of(want, len)));
}

/* What was written by hand must be, byte for byte, what protobuf-c packs. */
static void assert_packs_to(const BaseTest__Node *node, const struct buf *b)
{
	struct buf want = { 0 };

	buf_reserve(&want, base_test__node__get_packed_size(node));
	want.len = base_test__node__pack(node, want.ptr);
	ck_assert(slice_eq(buf_view(b), buf_view(&want)));
	buf_free(&want);
}

static const struct {
	uint64_t v;
	size_t size;
	const char *want;
} varints[] = {
	{ 0, 1, "\x00" },
	{ 1, 1, "\x01" },
	{ 127, 1, "\x7f" },
	{ 128, 2, "\x80\x01" },
	{ 300, 2, "\xac\x02" },
	{ 16383, 2, "\xff\x7f" },
	{ 16384, 3, "\x80\x80\x01" },
	{ UINT32_MAX, 5, "\xff\xff\xff\xff\x0f" },
	{ (UINT64_C(1) << 63) - 1, 9, "\xff\xff\xff\xff\xff\xff\xff\xff\x7f" },
	{ UINT64_MAX, 10, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" },
};

START_TEST(pbw__varints)
{
	struct buf b = { 0 };

	pbw_varint(&b, varints[_i].v);
	assert_bytes(&b, varints[_i].want, varints[_i].size);
	ck_assert_uint_eq(pbw_varint_size(varints[_i].v), varints[_i].size);
	buf_free(&b);
}
END_TEST

START_TEST(pbw__leaves_out_defaults)
{
	struct buf b = { 0 };

	pbw_u64(&b, 1, 0);
	pbw_i64(&b, 1, 0);
	pbw_fixed64(&b, 1, 0);
	pbw_bytes(&b, 1, (struct slice){ 0 });
	ck_assert_uint_eq(b.len, 0);
	pbw_u64_always(&b, 10, 0);
	pbw_bytes_always(&b, 11, (struct slice){ 0 });
	assert_bytes(&b, "\x50\x00\x5a\x00", 4);
	buf_free(&b);
}
END_TEST

START_TEST(pbw__writes_what_protobuf_c_packs)
{
	BaseTest__Node node = BASE_TEST__NODE__INIT;
	BaseTest__Node child = BASE_TEST__NODE__INIT;
	BaseTest__Leaf leaf = BASE_TEST__LEAF__INIT;
	BaseTest__Leaf empty = BASE_TEST__LEAF__INIT;
	char *names[] = { (char *)"a", (char *)"" };
	BaseTest__Node *children[] = { &child };
	struct buf b = { 0 };
	size_t outer, inner;

	node.id = UINT64_MAX;
	node.data = (ProtobufCBinaryData){ .len = 3, .data = (uint8_t *)(char *)"\0\1\2" };
	node.n_children = 1;
	node.children = children;
	child.leaf = &leaf;
	leaf.name = (char *)"leaf";
	leaf.on = 1;
	node.leaf = &empty;
	node.n_names = 2;
	node.names = names;
	node.choice_case = BASE_TEST__NODE__CHOICE_NUMBER;
	node.number = 0;
	node.stamp = 0x0123456789abcdef;
	node.kind = BASE_TEST__KIND__FANCY;
	node.balance = -5;

	pbw_u64(&b, 1, UINT64_MAX);
	pbw_bytes(&b, 2, slice_of("\0\1\2", 3));
	outer = pbw_open(&b, 3);
	inner = pbw_open(&b, 4);
	pbw_bytes(&b, 1, slice_of_str("leaf"));
	pbw_u64(&b, 3, true);
	pbw_close(&b, inner);
	pbw_close(&b, outer);
	pbw_close(&b, pbw_open(&b, 4));
	pbw_bytes_always(&b, 7, slice_of_str("a"));
	pbw_bytes_always(&b, 7, slice_of_str(""));
	pbw_u64_always(&b, 10, 0);
	pbw_fixed64(&b, 12, 0x0123456789abcdef);
	pbw_u64(&b, 15, BASE_TEST__KIND__FANCY);
	pbw_i64(&b, 21, -5);
	assert_packs_to(&node, &b);
	buf_free(&b);
}
END_TEST

static const size_t lengths[] = { 0, 1, 120, 123, 124, 125, 126, 127, 128, 16370, 16380, 16384, 2097140, 2097152 };

START_TEST(pbw__length_prefix_fits_any_length)
{
	BaseTest__Node node = BASE_TEST__NODE__INIT;
	BaseTest__Node child = BASE_TEST__NODE__INIT;
	BaseTest__Node grandchild = BASE_TEST__NODE__INIT;
	BaseTest__Node *children[] = { &child };
	size_t len = lengths[_i];
	uint8_t *data = mem_alloc(len);
	struct buf b = { 0 };
	size_t outer, inner;

	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(i * 31);
	node.id = 1;
	node.n_children = 1;
	node.children = children;
	node.balance = 2;
	child.choice_case = BASE_TEST__NODE__CHOICE_RIGHT;
	child.right = &grandchild;
	grandchild.data = (ProtobufCBinaryData){ .len = len, .data = data };

	pbw_u64(&b, 1, 1);
	outer = pbw_open(&b, 3);
	inner = pbw_open(&b, 9);
	pbw_bytes(&b, 2, slice_of(data, len));
	pbw_close(&b, inner);
	pbw_close(&b, outer);
	pbw_u64(&b, 21, 2);
	assert_packs_to(&node, &b);
	buf_free(&b);
	free(data);
}
END_TEST

START_TEST(pbw__large_field_numbers)
{
	BaseTest__Node node = BASE_TEST__NODE__INIT;
	uint64_t ratio_bits = 0x3ff8000000000000; /* 1.5 */
	struct buf b = { 0 };

	node.ratio = 1.5;
	pbw_fixed64(&b, 13, ratio_bits);
	assert_packs_to(&node, &b);
	buf_clear(&b);
	pbw_u64(&b, 536870911, 1); /* the largest there is */
	assert_bytes(&b, "\xf8\xff\xff\xff\x0f\x01", 6);
	buf_free(&b);
}
END_TEST

Suite *pbw_suite(void)
{
	Suite *s = suite_create("pbw");
	TCase *tc = tcase_create("pbw");

	tcase_add_loop_test(tc, pbw__varints, 0, (int)(sizeof(varints) / sizeof(varints[0])));
	tcase_add_test(tc, pbw__leaves_out_defaults);
	tcase_add_test(tc, pbw__writes_what_protobuf_c_packs);
	tcase_add_loop_test(tc, pbw__length_prefix_fits_any_length, 0, (int)(sizeof(lengths) / sizeof(lengths[0])));
	tcase_add_test(tc, pbw__large_field_numbers);
	suite_add_tcase(s, tc);
	return s;
}
