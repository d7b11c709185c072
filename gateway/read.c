/* read.c: JSON to packed protobuf.
 *
 * A message's members are first sorted into one slot a field, then written in the order of the fields: so a name given twice is resolved
 * before anything is written, and the bytes are those that protobuf-c would pack. Errors are words that etcd's users may know from Go. */
#include "transcode.h"

#include "base/base64.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "json.h"

enum {
	FIELDS_MAX = 32, /* of one message; a test looks at every message there is */
	NAME_MAX_LEN = 64,
};

struct reader {
	struct errmsg *em;
	struct buf scratch;
	unsigned depth;
	bool text; /* bytes come as text */
};

static enum err read_message(struct reader *r, const ProtobufCMessageDescriptor *desc, struct slice value, struct buf *out);

static enum err wrong_type(struct reader *r, const char *what, struct slice number, const char *type)
{
	if (number.len)
		errmsg_set(r->em, "json: cannot unmarshal %s %.*s into Go value of type %s", what, (int)(number.len > 100 ? 100 : number.len),
			   (const char *)number.ptr, type);
	else
		errmsg_set(r->em, "json: cannot unmarshal %s into Go value of type %s", what, type);
	return ERR_MALFORMED_JSON;
}

static enum err wrong_kind(struct reader *r, struct slice value, const char *type)
{
	return wrong_type(r, json_kind(value), slice_of(NULL, 0), type);
}

/* ---- numbers ---- */

struct integer {
	bool negative;
	uint64_t magnitude;
};

/* A JSON number that is an integer as Go's ParseInt takes it: no point, no exponent. */
static bool parse_integer(struct slice s, struct integer *ret)
{
	size_t i = s.ptr[0] == '-';
	*ret = (struct integer){ .negative = i > 0 };
	for (; i < s.len; i++) {
		unsigned digit = (unsigned)s.ptr[i] - '0';
		if (digit > 9 || ret->magnitude > (UINT64_MAX - digit) / 10)
			return false;
		ret->magnitude = ret->magnitude * 10 + digit;
	}
	return true;
}

static bool fits(struct integer v, bool is_signed, unsigned bits)
{
	uint64_t max = UINT64_MAX >> (64 - bits);
	if (!is_signed)
		return !v.negative && v.magnitude <= max;
	return v.magnitude <= max / 2 + v.negative;
}

/* Numbers may come as strings, of which Go reads what is between the quotes, as it stands. null is 0. */
static enum err read_integer(struct reader *r, struct slice value, bool is_signed, unsigned bits, const char *type, uint64_t *ret)
{
	struct integer v;
	if (value.ptr[0] == '"' && !json_whole(slice_of(value.ptr + 1, value.len - 2), &value, r->em))
		return ERR_MALFORMED_JSON;
	*ret = 0;
	if (json_is_null(value))
		return ERR_OK;
	if (value.ptr[0] != '-' && (value.ptr[0] < '0' || value.ptr[0] > '9'))
		return wrong_kind(r, value, type);
	if (!parse_integer(value, &v) || !fits(v, is_signed, bits))
		return wrong_type(r, "number", value, type);
	*ret = v.negative ? 0 - v.magnitude : v.magnitude;
	return ERR_OK;
}

static enum err read_bool(struct reader *r, struct slice value, uint64_t *ret)
{
	*ret = value.ptr[0] == 't';
	if (value.ptr[0] == 't' || value.ptr[0] == 'f' || json_is_null(value))
		return ERR_OK;
	return wrong_kind(r, value, "bool");
}

/* "etcdserverpb.RangeRequest.SortOrder" is etcdserverpb.RangeRequest_SortOrder in Go. */
static const char *go_name(const ProtobufCEnumDescriptor *desc, char *ret, size_t size)
{
	size_t package = strlen(desc->package_name) + 1, i;
	for (i = 0; desc->name[i] && i + 1 < size; i++)
		ret[i] = desc->name[i] == '.' && i >= package ? '_' : desc->name[i];
	ret[i] = '\0';
	return ret;
}

/* Quoted as Go does, as far as it matters, and cut. */
static const char *quote_name(struct slice text, char *ret, size_t size)
{
	size_t n = 0;
	for (size_t i = 0; i < text.len && n + 3 < size; i++) {
		if (text.ptr[i] == '\\' || text.ptr[i] == '"')
			ret[n++] = '\\';
		ret[n++] = (char)text.ptr[i];
	}
	ret[n] = '\0';
	return ret;
}

static enum err unknown_name(struct reader *r, const ProtobufCEnumDescriptor *desc, struct slice text)
{
	char name[128], type[96];
	errmsg_set(r->em, "unknown value \"%s\" for enum %s", quote_name(text, name, sizeof(name)), go_name(desc, type, sizeof(type)));
	return ERR_MALFORMED_JSON;
}

static const ProtobufCEnumValue *find_name(const ProtobufCEnumDescriptor *desc, struct slice text)
{
	char name[64];
	if (text.len >= sizeof(name) || memchr(text.ptr, '\0', text.len))
		return NULL;
	memcpy(name, text.ptr, text.len);
	name[text.len] = '\0';
	return protobuf_c_enum_descriptor_get_value_by_name(desc, name);
}

static enum err read_enum(struct reader *r, const ProtobufCEnumDescriptor *desc, struct slice value, uint64_t *ret)
{
	char type[96];
	const ProtobufCEnumValue *v;
	struct slice text;
	if (value.ptr[0] != '"')
		return read_integer(r, value, true, 32, go_name(desc, type, sizeof(type)), ret);
	text = slice_of(value.ptr + 1, value.len - 2);
	v = find_name(desc, text);
	if (!v)
		return unknown_name(r, desc, text);
	*ret = (uint64_t)(int64_t)v->value;
	return ERR_OK;
}

/* Integers, booleans, enums: as the 64 bits that go into a varint. */
static enum err read_scalar(struct reader *r, const ProtobufCFieldDescriptor *f, struct slice value, uint64_t *ret)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_INT32:
		return read_integer(r, value, true, 32, "int32", ret);
	case PROTOBUF_C_TYPE_UINT32:
		return read_integer(r, value, false, 32, "uint32", ret);
	case PROTOBUF_C_TYPE_INT64:
		return read_integer(r, value, true, 64, "int64", ret);
	case PROTOBUF_C_TYPE_UINT64:
		return read_integer(r, value, false, 64, "uint64", ret);
	case PROTOBUF_C_TYPE_BOOL:
		return read_bool(r, value, ret);
	case PROTOBUF_C_TYPE_ENUM:
		return read_enum(r, f->descriptor, value, ret);
	default:
		ASSERT(!"a kind of field that the API does not use");
		return ERR_MALFORMED_JSON;
	}
}

/* ---- bytes and text, left in r->scratch ---- */

/* Go takes a list of numbers for bytes, too. */
static enum err read_byte_list(struct reader *r, struct slice value)
{
	struct slice element;
	size_t pos = 0;
	while (json_next_element(value, &pos, &element)) {
		uint64_t byte;
		enum err e;
		if (element.ptr[0] == '"')
			return wrong_kind(r, element, "uint8");
		e = read_integer(r, element, false, 8, "uint8", &byte);
		if (e)
			return e;
		buf_append_byte(&r->scratch, (uint8_t)byte);
	}
	return ERR_OK;
}

static enum err not_utf8(struct reader *r)
{
	errmsg_set(r->em, "holdfast: a string in the request is not valid UTF-8");
	return ERR_MALFORMED_JSON;
}

static enum err read_string(struct reader *r, struct slice value)
{
	if (value.ptr[0] != '"')
		return json_is_null(value) ? ERR_OK : wrong_kind(r, value, "string");
	return json_unquote(value, &r->scratch) ? ERR_OK : not_utf8(r);
}

static enum err read_bytes(struct reader *r, struct slice value)
{
	struct slice text;
	struct buf unquoted = { .ptr = NULL };
	size_t at;
	bool ok;
	if (r->text)
		return read_string(r, value);
	if (value.ptr[0] == '[')
		return read_byte_list(r, value);
	if (value.ptr[0] != '"')
		return json_is_null(value) ? ERR_OK : wrong_kind(r, value, "[]uint8");
	text = slice_of(value.ptr + 1, value.len - 2);
	if (text.len && memchr(text.ptr, '\\', text.len)) {
		if (!json_unquote(value, &unquoted)) {
			buf_free(&unquoted);
			return not_utf8(r);
		}
		text = buf_view(&unquoted);
	}
	ok = base64_decode(&r->scratch, text, &at);
	buf_free(&unquoted);
	if (!ok) {
		errmsg_set(r->em, "illegal base64 data at input byte %zu", at);
		return ERR_MALFORMED_JSON;
	}
	return ERR_OK;
}

static bool is_scalar(const ProtobufCFieldDescriptor *f)
{
	return f->type != PROTOBUF_C_TYPE_MESSAGE && f->type != PROTOBUF_C_TYPE_BYTES && f->type != PROTOBUF_C_TYPE_STRING;
}

/* ---- fields ---- */

/* always: write it even when it has the default value, which for a member of a list or a oneof says something. */
static enum err read_one(struct reader *r, const ProtobufCFieldDescriptor *f, struct slice value, bool always, struct buf *out)
{
	enum err e;
	uint64_t v;
	size_t mark;
	if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
		mark = pbw_open(out, f->id);
		e = read_message(r, f->descriptor, value, out);
		if (!e)
			pbw_close(out, mark);
		return e;
	}
	if (is_scalar(f)) {
		e = read_scalar(r, f, value, &v);
		if (!e && (v || always))
			pbw_u64_always(out, f->id, v);
		return e;
	}
	buf_clear(&r->scratch);
	e = f->type == PROTOBUF_C_TYPE_BYTES ? read_bytes(r, value) : read_string(r, value);
	if (!e && (r->scratch.len || always))
		pbw_bytes_always(out, f->id, buf_view(&r->scratch));
	return e;
}

static enum err read_packed(struct reader *r, const ProtobufCFieldDescriptor *f, struct slice value, struct buf *out)
{
	struct slice element;
	size_t pos = 0, mark = 0;
	bool any = false;
	while (json_next_element(value, &pos, &element)) {
		uint64_t v;
		enum err e = read_scalar(r, f, element, &v);
		if (e)
			return e;
		if (!any)
			mark = pbw_open(out, f->id);
		any = true;
		pbw_varint(out, v);
	}
	if (any)
		pbw_close(out, mark);
	return ERR_OK;
}

/* Of an enum's name in the place of a list, Go looks at the name first. */
static enum err not_a_list(struct reader *r, const ProtobufCFieldDescriptor *f, struct slice value)
{
	char type[96];
	uint64_t v;
	if (f->type != PROTOBUF_C_TYPE_ENUM || value.ptr[0] != '"')
		return wrong_kind(r, value, "[]json.RawMessage");
	if (!read_enum(r, f->descriptor, value, &v))
		errmsg_set(r->em, "invalid target \"slice\" for enum %s", go_name(f->descriptor, type, sizeof(type)));
	return ERR_MALFORMED_JSON;
}

static enum err read_repeated(struct reader *r, const ProtobufCFieldDescriptor *f, struct slice value, struct buf *out)
{
	struct slice element;
	size_t pos = 0;
	if (value.ptr[0] != '[')
		return not_a_list(r, f, value);
	if (f->flags & PROTOBUF_C_FIELD_FLAG_PACKED)
		return read_packed(r, f, value, out);
	while (json_next_element(value, &pos, &element)) {
		enum err e;
		if (f->type == PROTOBUF_C_TYPE_MESSAGE && json_is_null(element)) {
			errmsg_set(r->em, "holdfast: null in the list \"%s\"", f->name);
			return ERR_MALFORMED_JSON;
		}
		e = read_one(r, f, element, true, out);
		if (e)
			return e;
	}
	return ERR_OK;
}

/* ---- messages ---- */

/* Whether name is the field's in lowerCamelCase: each underscore gone, and the letter behind it large. */
static bool is_camel_of(struct slice name, const char *field)
{
	size_t i = 0;
	for (; *field; field++, i++) {
		char c = *field;
		if (c == '_') {
			c = *++field;
			if (c >= 'a' && c <= 'z')
				c = (char)(c - 'a' + 'A');
		}
		if (i >= name.len || name.ptr[i] != (uint8_t)c)
			return false;
		if (!c)
			break;
	}
	return i == name.len;
}

struct slot {
	struct slice value; /* len 0: none */
	bool camel;
};

/* Where both spellings are given, etcd prefers lowerCamelCase. */
static void fill_slot(const ProtobufCMessageDescriptor *desc, struct slot *slots, struct slice name, struct slice value)
{
	for (unsigned i = 0; i < desc->n_fields; i++) {
		bool own = slice_eq(name, slice_of_str(desc->fields[i].name));
		bool camel = is_camel_of(name, desc->fields[i].name);
		if (camel || (own && !slots[i].camel))
			slots[i] = (struct slot){ value, camel };
		if (own || camel)
			return;
	}
}

static void fill_slots(struct reader *r, const ProtobufCMessageDescriptor *desc, struct slice object, struct slot *slots)
{
	struct slice key, value;
	size_t pos = 0;
	while (json_next_member(object, &pos, &key, &value)) {
		struct slice name = slice_of(key.ptr + 1, key.len - 2);
		if (name.len == 0 || name.len > NAME_MAX_LEN * 6)
			continue;
		if (memchr(name.ptr, '\\', name.len)) {
			buf_clear(&r->scratch);
			if (!json_unquote(key, &r->scratch))
				continue;
			name = buf_view(&r->scratch);
		}
		fill_slot(desc, slots, name, value);
	}
}

static enum err oneof_twice(struct reader *r, const ProtobufCFieldDescriptor *a, const ProtobufCFieldDescriptor *b)
{
	errmsg_set(r->em, "holdfast: only one of \"%s\" and \"%s\" may be given", a->name, b->name);
	return ERR_MALFORMED_JSON;
}

/* The field that its oneof has already; members of a oneof share where protobuf-c keeps which of them it is. */
static const ProtobufCFieldDescriptor *oneof_taken(const ProtobufCMessageDescriptor *desc, const struct slot *slots, unsigned before)
{
	for (unsigned i = 0; i < before; i++) {
		const ProtobufCFieldDescriptor *f = &desc->fields[i];
		if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF && f->quantifier_offset == desc->fields[before].quantifier_offset && slots[i].value.len)
			return f;
	}
	return NULL;
}

static enum err read_fields(struct reader *r, const ProtobufCMessageDescriptor *desc, struct slot *slots, struct buf *out)
{
	for (unsigned i = 0; i < desc->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &desc->fields[i], *other;
		bool oneof = f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
		enum err e;
		if (!slots[i].value.len || json_is_null(slots[i].value)) {
			slots[i].value.len = 0;
			continue;
		}
		other = oneof ? oneof_taken(desc, slots, i) : NULL;
		if (other)
			return oneof_twice(r, other, f);
		e = f->label == PROTOBUF_C_LABEL_REPEATED ? read_repeated(r, f, slots[i].value, out) : read_one(r, f, slots[i].value, oneof, out);
		if (e)
			return e;
	}
	return ERR_OK;
}

static enum err read_message(struct reader *r, const ProtobufCMessageDescriptor *desc, struct slice value, struct buf *out)
{
	struct slot slots[FIELDS_MAX] = { 0 };
	enum err e;
	ASSERT(desc->n_fields <= FIELDS_MAX);
	if (json_is_null(value))
		return ERR_OK;
	if (value.ptr[0] != '{')
		return wrong_kind(r, value, "map[string]json.RawMessage");
	if (r->depth == TRANSCODE_DEPTH_MAX) {
		errmsg_set(r->em, "%s", err_text(ERR_TOO_DEEP));
		return ERR_TOO_DEEP;
	}
	r->depth++;
	fill_slots(r, desc, value, slots);
	e = read_fields(r, desc, slots, out);
	r->depth--;
	return e;
}

static enum err read_whole(const ProtobufCMessageDescriptor *desc, struct slice value, bool text, struct buf *out, struct errmsg *em)
{
	struct reader r = { .em = em, .text = text };
	enum err e = read_message(&r, desc, value, out);
	buf_free(&r.scratch);
	return e;
}

enum err transcode_read(const ProtobufCMessageDescriptor *desc, struct slice value, struct buf *out, struct errmsg *em)
{
	return read_whole(desc, value, false, out, em);
}

enum err transcode_read_text(const ProtobufCMessageDescriptor *desc, struct slice value, struct buf *out, struct errmsg *em)
{
	return read_whole(desc, value, true, out, em);
}
