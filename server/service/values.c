/* values.c: --max-value-bytes: a cell for locks is not to become one for files. It looks at every field of bytes called "value" that a request would
 * store, however deep within a transaction; what is compared is not stored. */
#include <string.h>

#include "internal.h"

static bool message_fits(const ProtobufCMessage *m, size_t max);

static bool field_fits(const ProtobufCFieldDescriptor *f, const void *at, size_t max)
{
	if (f->type == PROTOBUF_C_TYPE_BYTES)
		return strcmp(f->name, "value") != 0 || ((const ProtobufCBinaryData *)at)->len <= max;
	if (f->type == PROTOBUF_C_TYPE_MESSAGE)
		return !*(const ProtobufCMessage *const *)at || message_fits(*(const ProtobufCMessage *const *)at, max);
	return true;
}

static bool list_fits(const ProtobufCFieldDescriptor *f, const ProtobufCMessage *const *list, size_t len, size_t max)
{
	for (size_t i = 0; f->type == PROTOBUF_C_TYPE_MESSAGE && i < len; i++) {
		if (!message_fits(list[i], max))
			return false;
	}
	return true;
}

/* Not as deep as a request may be nested: pb_check has seen to that. */
static bool message_fits(const ProtobufCMessage *m, size_t max)
{
	const char *at = (const char *)m;
	if (strcmp(m->descriptor->short_name, "Compare") == 0)
		return true;
	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		const void *quantifier = at + f->quantifier_offset;
		bool fits;
		if (f->label == PROTOBUF_C_LABEL_REPEATED)
			fits = list_fits(f, *(const ProtobufCMessage *const *const *)(const void *)(at + f->offset), *(const size_t *)quantifier, max);
		else if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF && *(const uint32_t *)quantifier != f->id)
			fits = true;
		else
			fits = field_fits(f, at + f->offset, max);
		if (!fits)
			return false;
	}
	return true;
}

enum err service_check_values(const struct service_call *c, const ProtobufCMessage *request, const char **ret_detail)
{
	size_t max = c->service->limits.max_value_bytes;
	if (max == 0 || c->method->access != METHOD_WRITE || message_fits(request, max))
		return ERR_OK;
	*ret_detail = "holdfast: a value is larger than this cell takes (--max-value-bytes)";
	return ERR_REQUEST_TOO_LARGE; /* for its code */
}
