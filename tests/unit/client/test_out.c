/* test_out.c: messages in the forms in which they are printed. */
#include <check.h>
#include <stdlib.h>

#include "etcd/rpc.pb-c.h"
#include "out.h"

static const char *text_of(struct buf *b)
{
	buf_append_byte(b, 0);
	return (const char *)b->ptr;
}

static void fill(Mvccpb__KeyValue *kv, const char *key, const char *value, size_t value_len)
{
	mvccpb__key_value__init(kv);
	kv->key = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)key, .len = strlen(key) };
	kv->value = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)value, .len = value_len };
	kv->mod_revision = 7;
	kv->lease = 255;
}

START_TEST(out__a_message_as_json_fields_and_table)
{
	Mvccpb__KeyValue kv;
	const struct out o = { .hex = false };
	struct buf b = { .ptr = NULL };
	fill(&kv, "a\"b", "x\ny", 3);
	out_json(&o, &kv.base, &b);
	ck_assert_str_eq(text_of(&b), "{\"key\":\"a\\\"b\",\"create_revision\":\"0\",\"mod_revision\":\"7\",\"version\":\"0\",\"value\":\"x\\ny\",\"lease\":\"255\"}");
	buf_clear(&b);
	out_fields(&o, "p.", &kv.base, &b);
	ck_assert_str_eq(text_of(&b), "p.key: \"a\\\"b\"\np.create_revision: \"0\"\np.mod_revision: \"7\"\np.version: \"0\"\np.value: \"x\\ny\"\np.lease: \"255\"\n");
	buf_clear(&b);
	table_of_message(&o, &kv.base, &b);
	ck_assert_str_eq(text_of(&b), "key   create_revision  mod_revision  version  value  lease\na\\\"b  0                7             0        x\\ny   ff\n");
	buf_free(&b);
}
END_TEST

START_TEST(out__bytes_that_are_no_text)
{
	Mvccpb__KeyValue kv;
	struct out o = { .hex = false };
	struct buf b = { .ptr = NULL };
	fill(&kv, "k", "\xff\x00", 2);
	out_json_bytes(&o, slice_of(kv.value.data, kv.value.len), &b);
	ck_assert_str_eq(text_of(&b), "{\"hex\":\"ff00\"}");
	o.hex = true;
	buf_clear(&b);
	out_json_bytes(&o, slice_of_str("k"), &b);
	ck_assert_str_eq(text_of(&b), "\"6b\"");
	buf_clear(&b);
	out_json_string(slice_of("a\xff\x01", 3), &b);
	ck_assert_str_eq(text_of(&b), "\"a\\ufffd\\u0001\"");
	buf_free(&b);
}
END_TEST

START_TEST(out__lists_and_what_is_not_set)
{
	Etcdserverpb__RangeResponse r = ETCDSERVERPB__RANGE_RESPONSE__INIT;
	Mvccpb__KeyValue kv, *kvs[1] = { &kv };
	const struct out o = { .hex = false };
	struct buf b = { .ptr = NULL };
	out_json(&o, &r.base, &b);
	ck_assert_str_eq(text_of(&b), "{\"kvs\":[],\"more\":false,\"count\":\"0\"}");
	fill(&kv, "k", "", 0);
	r.kvs = kvs;
	r.n_kvs = 1;
	buf_clear(&b);
	table_of_message(&o, &r.base, &b);
	ck_assert_str_eq(text_of(&b), "key  create_revision  mod_revision  version  value  lease\nk    0                7             0               ff\n");
	buf_free(&b);
}
END_TEST

START_TEST(out__a_cell_of_a_table_is_bounded)
{
	char long_text[600];
	struct table t = { .len = 0 };
	struct buf b = { .ptr = NULL };
	memset(long_text, 'x', sizeof(long_text));
	table_cell(&t, "head");
	table_head_done(&t);
	table_cell_bytes(&(struct out){ .hex = false }, &t, slice_of(long_text, sizeof(long_text)));
	table_print(&t, &b);
	ck_assert_uint_eq(b.len, strlen("head\n") + 256 + strlen("...\n"));
	table_free(&t);
	buf_free(&b);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("out");
	TCase *t = tcase_create("out");
	SRunner *r = srunner_create(s);
	int failed;
	tcase_add_test(t, out__a_message_as_json_fields_and_table);
	tcase_add_test(t, out__bytes_that_are_no_text);
	tcase_add_test(t, out__lists_and_what_is_not_set);
	tcase_add_test(t, out__a_cell_of_a_table_is_bounded);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
