/* cmd_kv.c: get, put, del, compact. */
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "ctl.h"
#include "etcd/rpc.pb-c.h"
#include "kv.h"
#include "text.h"

enum { VALUE_MAX = 64 << 20 }; /* from standard input; the cell's own bound is lower */

static ProtobufCBinaryData data_of(const struct buf *b)
{
	return (ProtobufCBinaryData){ .data = b->ptr, .len = b->len };
}

/* ---- ranges ---- */

/* The end of the range of all keys that begin with it. */
static void prefix_end(const struct buf *key, struct buf *ret)
{
	buf_append_slice(ret, buf_view(key));
	while (ret->len && ret->ptr[ret->len - 1] == 0xff)
		ret->len--;
	if (ret->len)
		ret->ptr[ret->len - 1]++;
	else
		buf_append_byte(ret, 0);
}

bool kv_range(const struct ctl *c, struct buf *key, struct buf *end)
{
	const struct args *a = &c->args;
	int ways = (a->words_len > 1) + a->prefix + a->from_key;
	if (ways > 1) {
		ctl_error("RANGE_END, --prefix and --from-key exclude each other");
		return false;
	}
	if (!ctl_bytes(c, a->words_len ? a->words[0] : "", key) || (a->words_len > 1 && !ctl_bytes(c, a->words[1], end)))
		return false;
	if (key->len == 0 && !a->prefix && !a->from_key) {
		ctl_error("a key is not empty (of all keys: \"\" --prefix)");
		return false;
	}
	if (a->prefix)
		prefix_end(key, end);
	if (a->from_key)
		buf_append_byte(end, 0);
	/* Every key: from the first one that there can be. */
	if (key->len == 0)
		buf_append_byte(key, 0);
	return true;
}

void kv_print(const struct ctl *c, const Mvccpb__KeyValue *kv, bool key, bool value)
{
	struct buf b = { .ptr = NULL };
	if (key) {
		out_bytes(&c->out, slice_of(kv->key.data, kv->key.len), &b);
		buf_append_byte(&b, '\n');
	}
	if (value) {
		out_bytes(&c->out, slice_of(kv->value.data, kv->value.len), &b);
		buf_append_byte(&b, '\n');
	}
	out_write(&b);
	buf_free(&b);
}

/* ---- get ---- */

static void print_get(struct ctl *c, const ProtobufCMessage *reply)
{
	const Etcdserverpb__RangeResponse *r = (const Etcdserverpb__RangeResponse *)reply;
	if (c->args.count_only)
		out_printf("%" PRId64 "\n", r->count);
	for (size_t i = 0; i < r->n_kvs; i++)
		kv_print(c, r->kvs[i], !c->args.values_only, !c->args.keys_only);
}

int command_get(struct ctl *c)
{
	const struct args *a = &c->args;
	Etcdserverpb__RangeRequest r = ETCDSERVERPB__RANGE_REQUEST__INIT;
	struct buf key = { .ptr = NULL }, end = { .ptr = NULL };
	int code = EXIT_USAGE;
	if (kv_range(c, &key, &end)) {
		r.key = data_of(&key);
		r.range_end = data_of(&end);
		r.limit = a->limit;
		r.revision = a->rev;
		r.sort_target = (Etcdserverpb__RangeRequest__SortTarget)a->sort;
		r.sort_order = (Etcdserverpb__RangeRequest__SortOrder)a->order;
		if (args_given(a, FLAG_SORT) && !args_given(a, FLAG_ORDER))
			r.sort_order = ETCDSERVERPB__RANGE_REQUEST__SORT_ORDER__ASCEND;
		r.serializable = a->local;
		r.keys_only = a->keys_only;
		r.count_only = a->count_only;
		code = ctl_run(c, METHOD_KV_RANGE, &r.base, ASK_AGAIN, print_get, "get '%s'", ctl_show(c, buf_view(&key)));
	}
	buf_free(&key);
	buf_free(&end);
	return code;
}

/* ---- put ---- */

static void print_put(struct ctl *c, const ProtobufCMessage *reply)
{
	const Etcdserverpb__PutResponse *r = (const Etcdserverpb__PutResponse *)reply;
	out_printf("OK\n");
	if (r->prev_kv)
		kv_print(c, r->prev_kv, true, true);
}

/* The value: the second argument, or standard input without its last newline, where there is no argument or it is "-". */
static int read_value(struct ctl *c, struct buf *ret)
{
	const struct args *a = &c->args;
	int code;
	if (a->ignore_value) {
		if (a->words_len > 1) {
			ctl_error("--ignore-value keeps the value: give none");
			return EXIT_USAGE;
		}
		return EXIT_DONE;
	}
	if (a->words_len > 1 && strcmp(a->words[1], "-") != 0)
		return ctl_bytes(c, a->words[1], ret) ? EXIT_DONE : EXIT_USAGE;
	code = ctl_read_input(ret, VALUE_MAX);
	if (!code && ret->len && ret->ptr[ret->len - 1] == '\n')
		ret->len--;
	if (!code && a->hex) {
		struct buf text = buf_take(ret);
		buf_append_byte(&text, 0);
		code = ctl_bytes(c, (const char *)text.ptr, ret) ? EXIT_DONE : EXIT_USAGE;
		buf_free(&text);
	}
	return code;
}

int command_put(struct ctl *c)
{
	const struct args *a = &c->args;
	Etcdserverpb__PutRequest r = ETCDSERVERPB__PUT_REQUEST__INIT;
	struct buf key = { .ptr = NULL }, value = { .ptr = NULL };
	int code = ctl_bytes(c, a->words[0], &key) ? read_value(c, &value) : EXIT_USAGE;
	if (!code) {
		r.key = data_of(&key);
		r.value = data_of(&value);
		r.lease = a->lease;
		r.prev_kv = a->prev_kv;
		r.ignore_value = a->ignore_value;
		r.ignore_lease = a->ignore_lease;
		code = ctl_run(c, METHOD_KV_PUT, &r.base, ASK_ONCE, print_put, "put '%s'", ctl_show(c, buf_view(&key)));
	}
	buf_free(&key);
	buf_free(&value);
	return code;
}

/* ---- del ---- */

static void print_del(struct ctl *c, const ProtobufCMessage *reply)
{
	const Etcdserverpb__DeleteRangeResponse *r = (const Etcdserverpb__DeleteRangeResponse *)reply;
	out_printf("%" PRId64 "\n", r->deleted);
	for (size_t i = 0; i < r->n_prev_kvs; i++)
		kv_print(c, r->prev_kvs[i], true, true);
}

int command_del(struct ctl *c)
{
	Etcdserverpb__DeleteRangeRequest r = ETCDSERVERPB__DELETE_RANGE_REQUEST__INIT;
	struct buf key = { .ptr = NULL }, end = { .ptr = NULL };
	int code = EXIT_USAGE;
	if (kv_range(c, &key, &end)) {
		r.key = data_of(&key);
		r.range_end = data_of(&end);
		r.prev_kv = c->args.prev_kv;
		code = ctl_run(c, METHOD_KV_DELETE_RANGE, &r.base, ASK_ONCE, print_del, "delete '%s'", ctl_show(c, buf_view(&key)));
	}
	buf_free(&key);
	buf_free(&end);
	return code;
}

/* ---- compact ---- */

static void print_compact(struct ctl *c, const ProtobufCMessage *reply)
{
	(void)reply;
	out_printf("compacted at revision %s\n", c->args.words[0]);
}

int command_compact(struct ctl *c)
{
	Etcdserverpb__CompactionRequest r = ETCDSERVERPB__COMPACTION_REQUEST__INIT;
	struct errmsg em;
	if (!text_i64(c->args.words[0], 1, INT64_MAX, &r.revision, &em)) {
		ctl_error("REVISION: %s", em.text);
		return EXIT_USAGE;
	}
	r.physical = c->args.physical;
	return ctl_run(c, METHOD_KV_COMPACT, &r.base, ASK_ONCE, print_compact, "compact at revision %s", c->args.words[0]);
}
