/* test_transcode.c: any message to JSON and back, and what reading takes and refuses. */
#include <check.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/pbw.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3lock.pb-c.h"
#include "gateway/json.h"
#include "gateway/transcode.h"
#include "holdfast/v1.pb-c.h"
#include "methods.h"
#include "random_message.h"

/* ---- every message ---- */

static const ProtobufCMessageDescriptor *descriptor_at(int i)
{
	const struct method *m;
	if (i == 2 * METHOD_COUNT)
		return &holdfast__v1__lock_refusal__descriptor;
	m = method_by_id((enum method_id)(i / 2));
	return i % 2 ? m->reply : m->request;
}

START_TEST(transcode__round_trip)
{
	struct rng rng;
	struct arena scratch;
	arena_init(&scratch);
	rng_init(&rng, (uint64_t)_i + 1);
	for (int n = 0; n < 60; n++) {
		const ProtobufCMessageDescriptor *desc = descriptor_at(_i);
		struct buf packed = random_packed(&rng, desc), text = { .ptr = NULL }, back = { .ptr = NULL };
		struct slice value;
		struct errmsg em = { .text = "" };
		ck_assert(transcode_write(desc, buf_view(&packed), &scratch, &text));
		ck_assert(json_whole(buf_view(&text), &value, &em));
		ck_assert_uint_eq(value.len, text.len);
		ck_assert_msg(transcode_read(desc, value, &back, &em) == ERR_OK, "%s: %.*s", em.text, (int)text.len, (char *)text.ptr);
		ck_assert_msg(slice_eq(buf_view(&packed), buf_view(&back)), "%s: %.*s", desc->name, (int)text.len, (char *)text.ptr);
		buf_free(&packed);
		buf_free(&text);
		buf_free(&back);
	}
	arena_deinit(&scratch);
}
END_TEST

static void check_kinds(const ProtobufCMessageDescriptor *desc, int depth)
{
	ck_assert_uint_le(desc->n_fields, 32);
	for (unsigned i = 0; i < desc->n_fields && depth < 6; i++) {
		const ProtobufCFieldDescriptor *f = &desc->fields[i];
		ck_assert(f->label == PROTOBUF_C_LABEL_NONE || f->label == PROTOBUF_C_LABEL_REPEATED);
		ck_assert_uint_lt(strlen(f->name), 64);
		switch (f->type) {
		case PROTOBUF_C_TYPE_INT32:
		case PROTOBUF_C_TYPE_UINT32:
		case PROTOBUF_C_TYPE_INT64:
		case PROTOBUF_C_TYPE_UINT64:
		case PROTOBUF_C_TYPE_BOOL:
		case PROTOBUF_C_TYPE_ENUM:
		case PROTOBUF_C_TYPE_STRING:
		case PROTOBUF_C_TYPE_BYTES:
			break;
		case PROTOBUF_C_TYPE_MESSAGE:
			check_kinds(f->descriptor, depth + 1);
			break;
		default:
			ck_abort_msg("%s.%s is of a kind that the transcoder does not know", desc->name, f->name);
		}
	}
}

START_TEST(transcode__knows_every_kind_of_field)
{
	check_kinds(descriptor_at(_i), 0);
}
END_TEST

/* ---- reading ---- */

enum which { RANGE, TXN, WATCH, MEMBER_ADD, LOCK, MOVE, ALARM };

static const ProtobufCMessageDescriptor *const kinds[] = {
	[RANGE] = &etcdserverpb__range_request__descriptor,   [TXN] = &etcdserverpb__txn_request__descriptor,
	[WATCH] = &etcdserverpb__watch_request__descriptor,   [MEMBER_ADD] = &etcdserverpb__member_add_request__descriptor,
	[LOCK] = &v3lockpb__lock_request__descriptor,         [MOVE] = &etcdserverpb__move_leader_request__descriptor,
	[ALARM] = &etcdserverpb__alarm_request__descriptor,
};

struct read_case {
	enum which which;
	const char *json;
	const char *again; /* as it is written then; NULL: refused */
	const char *error;
};

#define INT64_ERROR(n) "json: cannot unmarshal number " n " into Go value of type int64"

static const struct read_case reads[] = {
	{ RANGE, "null", "{}", NULL },
	{ RANGE, "{\"key\":\"Zm9v\"}", "{\"key\":\"Zm9v\"}", NULL },
	{ RANGE, "{\"\\u006bey\":\"Zm9v\"}", "{\"key\":\"Zm9v\"}", NULL },
	{ RANGE, "{\"nobody\":{\"key\":1},\"Key\":5}", "{}", NULL },
	{ RANGE, "{\"range_end\":\"Zg==\",\"rangeEnd\":\"Zw==\"}", "{\"range_end\":\"Zw==\"}", NULL },
	{ RANGE, "{\"rangeEnd\":\"Zw==\",\"range_end\":\"Zg==\"}", "{\"range_end\":\"Zw==\"}", NULL },
	{ RANGE, "{\"limit\":\"x\",\"limit\":3}", "{\"limit\":\"3\"}", NULL },
	{ RANGE, "{\"limit\":3,\"limit\":null}", "{}", NULL },
	{ RANGE, "{\"limit\":\" -3 \"}", "{\"limit\":\"-3\"}", NULL },
	{ RANGE, "{\"limit\":\"9223372036854775807\"}", "{\"limit\":\"9223372036854775807\"}", NULL },
	{ RANGE, "{\"limit\":-9223372036854775808}", "{\"limit\":\"-9223372036854775808\"}", NULL },
	{ RANGE, "{\"limit\":9223372036854775808}", NULL, INT64_ERROR("9223372036854775808") },
	{ RANGE, "{\"limit\":-9223372036854775809}", NULL, INT64_ERROR("-9223372036854775809") },
	{ RANGE, "{\"limit\":99999999999999999999}", NULL, INT64_ERROR("99999999999999999999") },
	{ RANGE, "{\"limit\":1.0}", NULL, INT64_ERROR("1.0") },
	{ RANGE, "{\"limit\":\"1e3\"}", NULL, INT64_ERROR("1e3") },
	{ RANGE, "{\"limit\":\"01\"}", NULL, "invalid character '1' after top-level value" },
	{ RANGE, "{\"limit\":\"\"}", NULL, "unexpected end of JSON input" },
	{ RANGE, "{\"limit\":true}", NULL, "json: cannot unmarshal bool into Go value of type int64" },
	{ RANGE, "{\"serializable\":\"true\"}", NULL, "json: cannot unmarshal string into Go value of type bool" },
	{ RANGE, "{\"sort_order\":\"DESCEND\",\"sortTarget\":4}", "{\"sort_order\":\"DESCEND\",\"sort_target\":\"VALUE\"}", NULL },
	{ RANGE, "{\"sort_order\":77}", "{\"sort_order\":77}", NULL },
	{ RANGE, "{\"sort_order\":-1}", "{\"sort_order\":-1}", NULL },
	{ RANGE, "{\"sort_order\":\"1\"}", NULL, "unknown value \"1\" for enum etcdserverpb.RangeRequest_SortOrder" },
	{ RANGE, "{\"sort_order\":2147483648}", NULL, "json: cannot unmarshal number 2147483648 into Go value of type etcdserverpb.RangeRequest_SortOrder" },
	{ RANGE, "{\"key\":[102,null,111]}", "{\"key\":\"ZgBv\"}", NULL },
	{ RANGE, "{\"key\":[256]}", NULL, "json: cannot unmarshal number 256 into Go value of type uint8" },
	{ RANGE, "{\"key\":5}", NULL, "json: cannot unmarshal number into Go value of type []uint8" },
	{ RANGE, "{\"key\":\"@\"}", NULL, "illegal base64 data at input byte 0" },
	{ RANGE, "{\"key\":\"Zm9\\u0076\"}", "{\"key\":\"Zm9v\"}", NULL },
	{ RANGE, "[]", NULL, "json: cannot unmarshal array into Go value of type map[string]json.RawMessage" },
	{ ALARM, "{\"alarm\":\"BAD\"}", NULL, "unknown value \"BAD\" for enum etcdserverpb.AlarmType" },
	{ MOVE, "{\"targetID\":18446744073709551615}", "{\"targetID\":\"18446744073709551615\"}", NULL },
	{ MOVE, "{\"targetID\":-1}", NULL, "json: cannot unmarshal number -1 into Go value of type uint64" },
	{ MOVE, "{\"target_ID\":1}", "{}", NULL },
	{ TXN, "{\"compare\":[{\"version\":0}]}", "{\"compare\":[{\"version\":\"0\"}]}", NULL },
	{ TXN, "{\"compare\":[{\"version\":null,\"value\":\"\"}]}", "{\"compare\":[{\"value\":\"\"}]}", NULL },
	{ TXN, "{\"compare\":[{\"version\":1,\"lease\":2}]}", NULL, "holdfast: only one of \"version\" and \"lease\" may be given" },
	{ TXN, "{\"success\":[{\"request_put\":{}}, {\"requestRange\":{\"key\":\"AA==\"}}]}",
	  "{\"success\":[{\"request_put\":{}},{\"request_range\":{\"key\":\"AA==\"}}]}", NULL },
	{ TXN, "{\"success\":[null]}", NULL, "holdfast: null in the list \"success\"" },
	{ TXN, "{\"success\":{}}", NULL, "json: cannot unmarshal object into Go value of type []json.RawMessage" },
	{ TXN, "{\"success\":[1]}", NULL, "json: cannot unmarshal number into Go value of type map[string]json.RawMessage" },
	{ WATCH, "{\"create_request\":{\"filters\":[\"NODELETE\",0,null]}}", "{\"create_request\":{\"filters\":[\"NODELETE\",\"NOPUT\",\"NOPUT\"]}}", NULL },
	{ WATCH, "{\"create_request\":{\"filters\":\"NOPUT\"}}", NULL, "invalid target \"slice\" for enum etcdserverpb.WatchCreateRequest_FilterType" },
	{ WATCH, "{\"progress_request\":{}}", "{\"progress_request\":{}}", NULL },
	{ WATCH, "{\"progress_request\":null}", "{}", NULL },
	{ MEMBER_ADD, "{\"peerURLs\":[\"a\",null,\"\\u00e9<\"]}", "{\"peerURLs\":[\"a\",\"\",\"\xc3\xa9\\u003c\"]}", NULL },
	{ MEMBER_ADD, "{\"peerURLs\":[\"\xff\"]}", NULL, "holdfast: a string in the request is not valid UTF-8" },
	{ MEMBER_ADD, "{\"peerURLs\":[1]}", NULL, "json: cannot unmarshal number into Go value of type string" },
	{ LOCK, "{\"mode\":\"SHARED\",\"waitMs\":0}", "{\"mode\":\"SHARED\",\"wait_ms\":\"0\"}", NULL },
};

START_TEST(transcode_read__cases)
{
	const struct read_case *c = &reads[_i];
	const ProtobufCMessageDescriptor *desc = kinds[c->which];
	struct errmsg em = { .text = "" };
	struct buf packed = { .ptr = NULL }, text = { .ptr = NULL };
	struct arena scratch;
	struct slice value;
	enum err e;
	ck_assert(json_whole(slice_of_str(c->json), &value, &em));
	e = transcode_read(desc, value, &packed, &em);
	if (c->again) {
		arena_init(&scratch);
		ck_assert_msg(!e, "%s", em.text);
		ck_assert(transcode_write(desc, buf_view(&packed), &scratch, &text));
		ck_assert_msg(slice_eq(buf_view(&text), slice_of_str(c->again)), "%.*s", (int)text.len, (char *)text.ptr);
		arena_deinit(&scratch);
	} else {
		ck_assert_int_eq(e, ERR_MALFORMED_JSON);
		ck_assert_str_eq(em.text, c->error);
	}
	buf_free(&packed);
	buf_free(&text);
}
END_TEST

static struct buf nested(int depth)
{
	struct buf text = { .ptr = NULL };
	for (int i = 0; i < depth; i++)
		buf_append_slice(&text, slice_of_str("{\"success\":[{\"request_txn\":"));
	buf_append_slice(&text, slice_of_str("{}"));
	for (int i = 0; i < depth; i++)
		buf_append_slice(&text, slice_of_str("}]}"));
	return text;
}

START_TEST(transcode_read__depth_is_bounded)
{
	struct errmsg em;
	struct slice value;
	for (int i = 0; i < 2; i++) {
		struct buf text = nested(i ? 3000 : TRANSCODE_DEPTH_MAX / 2 - 1), packed = { .ptr = NULL };
		ck_assert(json_whole(buf_view(&text), &value, &em));
		ck_assert_int_eq(transcode_read(kinds[TXN], value, &packed, &em), i ? ERR_TOO_DEEP : ERR_OK);
		buf_free(&text);
		buf_free(&packed);
	}
}
END_TEST

START_TEST(transcode_write_any__names_the_type)
{
	struct buf packed = { .ptr = NULL }, text = { .ptr = NULL };
	struct arena scratch;
	arena_init(&scratch);
	pbw_bytes(&packed, 1, slice_of_str("lk"));
	pbw_i64(&packed, 3, 2);
	ck_assert(transcode_write_any(&holdfast__v1__lock_refusal__descriptor, buf_view(&packed), &scratch, &text));
	ck_assert(slice_eq(buf_view(&text), slice_of_str("{\"@type\":\"type.googleapis.com/holdfast.v1.LockRefusal\",\"name\":\"bGs=\",\"waiters\":\"2\"}")));
	ck_assert(!transcode_write(&holdfast__v1__lock_refusal__descriptor, slice_of_str("refused"), &scratch, &text));
	buf_free(&packed);
	buf_free(&text);
	arena_deinit(&scratch);
}
END_TEST

#define LEN(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
	Suite *s = suite_create("gateway_transcode");
	TCase *tc = tcase_create("all");
	SRunner *sr;
	int failed;
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, transcode__round_trip, 0, 2 * METHOD_COUNT + 1);
	tcase_add_loop_test(tc, transcode__knows_every_kind_of_field, 0, 2 * METHOD_COUNT + 1);
	tcase_add_loop_test(tc, transcode_read__cases, 0, LEN(reads));
	tcase_add_test(tc, transcode_read__depth_is_bounded);
	tcase_add_test(tc, transcode_write_any__names_the_type);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
