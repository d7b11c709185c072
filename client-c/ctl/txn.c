/* txn.c: see txn.h. */
#include "txn.h"

#include <stdio.h>

#include "base/mem.h"
#include "text.h"

enum { WORDS_MAX = 8 };

struct parse {
	struct arena *a;
	bool hex;
	struct errmsg *em;
	struct slice words[WORDS_MAX]; /* of the line; each with a NUL after it */
	size_t len;
};

static bool fail(struct parse *p, const char *text)
{
	errmsg_set(p->em, "%s", text);
	return false;
}

static bool bytes_of(struct parse *p, struct slice word, ProtobufCBinaryData *ret)
{
	struct buf b = { .ptr = NULL };
	struct slice s = word;
	if (p->hex) {
		if (!text_hex((const char *)word.ptr, &b, p->em))
			return false;
		s = arena_copy(p->a, buf_view(&b));
		buf_free(&b);
	}
	*ret = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)s.ptr, .len = s.len };
	return true;
}

static bool split(struct parse *p, const char *line)
{
	struct buf word = { .ptr = NULL };
	p->len = 0;
	for (;;) {
		buf_clear(&word);
		if (!text_word(&line, &word, p->em))
			break;
		if (p->len == WORDS_MAX) {
			fail(p, "too many words");
			break;
		}
		p->words[p->len] = slice_of(arena_strdup(p->a, buf_view(&word)), word.len);
		p->len++;
	}
	buf_free(&word);
	return p->em->text[0] == '\0';
}

static bool word_is(struct slice w, const char *text)
{
	return slice_eq(w, slice_of_str(text));
}

/* ---- compares ---- */

struct target {
	const char *name;
	Etcdserverpb__Compare__CompareTarget target;
	Etcdserverpb__Compare__TargetUnionCase value;
};

static const struct target targets[] = {
	{ "value", ETCDSERVERPB__COMPARE__COMPARE_TARGET__VALUE, ETCDSERVERPB__COMPARE__TARGET_UNION_VALUE },
	{ "val", ETCDSERVERPB__COMPARE__COMPARE_TARGET__VALUE, ETCDSERVERPB__COMPARE__TARGET_UNION_VALUE },
	{ "version", ETCDSERVERPB__COMPARE__COMPARE_TARGET__VERSION, ETCDSERVERPB__COMPARE__TARGET_UNION_VERSION },
	{ "ver", ETCDSERVERPB__COMPARE__COMPARE_TARGET__VERSION, ETCDSERVERPB__COMPARE__TARGET_UNION_VERSION },
	{ "create", ETCDSERVERPB__COMPARE__COMPARE_TARGET__CREATE, ETCDSERVERPB__COMPARE__TARGET_UNION_CREATE_REVISION },
	{ "c", ETCDSERVERPB__COMPARE__COMPARE_TARGET__CREATE, ETCDSERVERPB__COMPARE__TARGET_UNION_CREATE_REVISION },
	{ "mod", ETCDSERVERPB__COMPARE__COMPARE_TARGET__MOD, ETCDSERVERPB__COMPARE__TARGET_UNION_MOD_REVISION },
	{ "m", ETCDSERVERPB__COMPARE__COMPARE_TARGET__MOD, ETCDSERVERPB__COMPARE__TARGET_UNION_MOD_REVISION },
	{ "lease", ETCDSERVERPB__COMPARE__COMPARE_TARGET__LEASE, ETCDSERVERPB__COMPARE__TARGET_UNION_LEASE },
};

static bool relation_of(struct slice w, Etcdserverpb__Compare__CompareResult *ret)
{
	static const struct {
		const char *name;
		Etcdserverpb__Compare__CompareResult result;
	} all[] = {
		{ "=", ETCDSERVERPB__COMPARE__COMPARE_RESULT__EQUAL },
		{ "!=", ETCDSERVERPB__COMPARE__COMPARE_RESULT__NOT_EQUAL },
		{ "<", ETCDSERVERPB__COMPARE__COMPARE_RESULT__LESS },
		{ ">", ETCDSERVERPB__COMPARE__COMPARE_RESULT__GREATER },
	};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (word_is(w, all[i].name)) {
			*ret = all[i].result;
			return true;
		}
	}
	return false;
}

static bool compare_value(struct parse *p, const struct target *t, struct slice w, Etcdserverpb__Compare *c)
{
	int64_t number;
	c->target = t->target;
	c->target_union_case = t->value;
	if (t->value == ETCDSERVERPB__COMPARE__TARGET_UNION_VALUE)
		return bytes_of(p, w, &c->value);
	if (t->value == ETCDSERVERPB__COMPARE__TARGET_UNION_LEASE) {
		if (word_is(w, "0")) {
			c->lease = 0;
			return true;
		}
		return text_lease((const char *)w.ptr, &c->lease, p->em);
	}
	if (!text_i64((const char *)w.ptr, INT64_MIN, INT64_MAX, &number, p->em))
		return false;
	/* One place for all three: they are members of one union. */
	c->version = number;
	return true;
}

/* NAME("key") RELATION "value"; the first word is NAME(key) once the quotes are gone. */
static bool parse_compare(struct parse *p, const char *line, Etcdserverpb__Compare **ret)
{
	static const char form[] = "a compare is written TARGET(\"KEY\") RELATION \"VALUE\", as in: mod(\"a\") > \"0\"";
	Etcdserverpb__Compare *c = arena_alloc(p->a, sizeof(*c));
	etcdserverpb__compare__init(c);
	if (!split(p, line))
		return false;
	if (p->len != 3 || !relation_of(p->words[1], &c->result))
		return fail(p, form);
	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		struct slice w = p->words[0];
		size_t n = strlen(targets[i].name);
		if (w.len < n + 3 || memcmp(w.ptr, targets[i].name, n) != 0 || w.ptr[n] != '(' || w.ptr[w.len - 1] != ')')
			continue;
		w = slice_of(arena_strdup(p->a, slice_of(w.ptr + n + 1, w.len - n - 2)), w.len - n - 2);
		*ret = c;
		return bytes_of(p, w, &c->key) && compare_value(p, &targets[i], p->words[2], c);
	}
	return fail(p, form);
}

/* ---- operations ---- */

/* Takes the words that are flags out; false: one of them is not known. */
static bool op_flags(struct parse *p, bool *ret_prefix, struct slice *ret_lease)
{
	static const char lease[] = "--lease=";
	size_t k = 1;
	for (size_t i = 1; i < p->len; i++) {
		struct slice w = p->words[i];
		if (word_is(w, "--prefix"))
			*ret_prefix = true;
		else if (slice_starts_with(w, slice_of_str(lease)))
			*ret_lease = slice_of(w.ptr + strlen(lease), w.len - strlen(lease));
		else if (w.len > 2 && memcmp(w.ptr, "--", 2) == 0)
			return fail(p, "an operation's flags are --prefix and --lease=LEASE");
		else
			p->words[k++] = w;
	}
	p->len = k;
	return true;
}

static ProtobufCBinaryData after_prefix(struct arena *a, ProtobufCBinaryData key)
{
	uint8_t *end = arena_alloc(a, key.len + 1);
	size_t len = key.len;
	memcpy(end, key.data, key.len);
	while (len && end[len - 1] == 0xff)
		len--;
	if (len)
		end[len - 1]++;
	else
		end[len++] = 0;
	return (ProtobufCBinaryData){ .data = end, .len = len };
}

static bool op_range(struct parse *p, bool prefix, ProtobufCBinaryData *key, ProtobufCBinaryData *end)
{
	if (p->len < 2 || p->len > 3 || (p->len == 3 && prefix))
		return fail(p, "written: get KEY [RANGE_END] [--prefix], and del alike");
	if (!bytes_of(p, p->words[1], key) || (p->len == 3 && !bytes_of(p, p->words[2], end)))
		return false;
	if (prefix)
		*end = after_prefix(p->a, *key);
	return true;
}

static bool op_get(struct parse *p, bool prefix, Etcdserverpb__RequestOp *op)
{
	op->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE;
	op->request_range = arena_alloc(p->a, sizeof(*op->request_range));
	etcdserverpb__range_request__init(op->request_range);
	return op_range(p, prefix, &op->request_range->key, &op->request_range->range_end);
}

static bool op_del(struct parse *p, bool prefix, Etcdserverpb__RequestOp *op)
{
	op->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
	op->request_delete_range = arena_alloc(p->a, sizeof(*op->request_delete_range));
	etcdserverpb__delete_range_request__init(op->request_delete_range);
	return op_range(p, prefix, &op->request_delete_range->key, &op->request_delete_range->range_end);
}

static bool op_put(struct parse *p, bool prefix, struct slice lease, Etcdserverpb__RequestOp *op)
{
	Etcdserverpb__PutRequest *put = arena_alloc(p->a, sizeof(*put));
	etcdserverpb__put_request__init(put);
	op->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
	op->request_put = put;
	if (p->len != 3 || prefix)
		return fail(p, "written: put KEY VALUE [--lease=LEASE]");
	if (lease.ptr && !text_lease((const char *)lease.ptr, &put->lease, p->em))
		return false;
	return bytes_of(p, p->words[1], &put->key) && bytes_of(p, p->words[2], &put->value);
}

static bool parse_op(struct parse *p, const char *line, Etcdserverpb__RequestOp **ret)
{
	Etcdserverpb__RequestOp *op = arena_alloc(p->a, sizeof(*op));
	bool prefix = false;
	struct slice lease = slice_of(NULL, 0), verb;
	etcdserverpb__request_op__init(op);
	*ret = op;
	if (!split(p, line) || !op_flags(p, &prefix, &lease))
		return false;
	verb = p->words[0];
	if (word_is(verb, "put"))
		return op_put(p, prefix, lease, op);
	if (lease.ptr)
		return fail(p, "only put takes --lease");
	if (word_is(verb, "get"))
		return op_get(p, prefix, op);
	if (word_is(verb, "del"))
		return op_del(p, prefix, op);
	return fail(p, "an operation is put, get or del");
}

/* ---- the whole ---- */

static void *list_of(struct arena *a)
{
	return arena_alloc(a, TXN_LINES_MAX * sizeof(void *));
}

static bool parse_line(struct parse *p, int section, const char *line, Etcdserverpb__TxnRequest *t)
{
	size_t *len = section == 0 ? &t->n_compare : section == 1 ? &t->n_success : &t->n_failure;
	if (*len == TXN_LINES_MAX)
		return fail(p, "too many lines");
	if (section == 0 ? parse_compare(p, line, &t->compare[*len]) : parse_op(p, line, section == 1 ? &t->success[*len] : &t->failure[*len])) {
		(*len)++;
		return true;
	}
	return false;
}

bool txn_parse(struct slice text, bool hex, struct arena *a, Etcdserverpb__TxnRequest *ret, struct errmsg *em)
{
	struct parse p = { .a = a, .hex = hex, .em = em };
	int section = 0, number = 0;
	etcdserverpb__txn_request__init(ret);
	ret->compare = list_of(a);
	ret->success = list_of(a);
	ret->failure = list_of(a);
	em->text[0] = '\0';
	while (text.len) {
		const uint8_t *nl = memchr(text.ptr, '\n', text.len);
		size_t n = nl ? (size_t)(nl - text.ptr) : text.len;
		const char *line = arena_strdup(a, slice_of(text.ptr, n && text.ptr[n - 1] == '\r' ? n - 1 : n));
		bool blank = line[strspn(line, " \t")] == '\0';
		text = slice_of(text.ptr + n + (nl != NULL), text.len - n - (nl != NULL));
		number++;
		if (blank) {
			section++;
		} else if (section > 2) {
			errmsg_set(em, "line %d: there are three parts, compares, then and else, and this is a fourth", number);
			return false;
		} else if (!parse_line(&p, section, line, ret)) {
			errmsg_set(em, "line %d: %s", number, em->text);
			return false;
		}
	}
	return true;
}
