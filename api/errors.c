/* errors.c: the table of errors.h, looked up. */
#include "errors.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct err_row {
	const char *name;
	const char *text;
	enum status_code status;
};

static const struct err_row rows[ERR_COUNT] = {
	[ERR_OK] = { "ERR_OK", "", STATUS_OK },
#define X(id, status, text) [id] = { #id, text, status },
	ERR_TABLE(X)
#undef X
};

static const struct err_row *row_of(enum err e)
{
	static const struct err_row stranger = { "ERR_?", "holdfast: unknown error", STATUS_INTERNAL };
	return (unsigned)e < ERR_COUNT ? &rows[e] : &stranger;
}

const char *err_name(enum err e)
{
	return row_of(e)->name;
}

const char *err_text(enum err e)
{
	return row_of(e)->text;
}

enum status_code err_status(enum err e)
{
	return row_of(e)->status;
}

const char *status_name(enum status_code s)
{
	static const char *const names[STATUS_COUNT] = {
		[STATUS_OK] = "OK",
		[STATUS_CANCELED] = "Canceled",
		[STATUS_UNKNOWN] = "Unknown",
		[STATUS_INVALID_ARGUMENT] = "InvalidArgument",
		[STATUS_DEADLINE_EXCEEDED] = "DeadlineExceeded",
		[STATUS_NOT_FOUND] = "NotFound",
		[STATUS_ALREADY_EXISTS] = "AlreadyExists",
		[STATUS_PERMISSION_DENIED] = "PermissionDenied",
		[STATUS_RESOURCE_EXHAUSTED] = "ResourceExhausted",
		[STATUS_FAILED_PRECONDITION] = "FailedPrecondition",
		[STATUS_ABORTED] = "Aborted",
		[STATUS_OUT_OF_RANGE] = "OutOfRange",
		[STATUS_UNIMPLEMENTED] = "Unimplemented",
		[STATUS_INTERNAL] = "Internal",
		[STATUS_UNAVAILABLE] = "Unavailable",
		[STATUS_DATA_LOSS] = "DataLoss",
		[STATUS_UNAUTHENTICATED] = "Unauthenticated",
	};
	return (unsigned)s < STATUS_COUNT ? names[s] : "?";
}

void errmsg_set(struct errmsg *em, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	errmsg_setv(em, fmt, ap);
	va_end(ap);
}

/* Where a text of `len` bytes ends once a UTF-8 character cut off at its end is dropped. */
static size_t utf8_whole(const char *text, size_t len)
{
	size_t start = len;
	unsigned char lead;
	size_t need;

	while (start > 0 && len - start < 3 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
		start--;
	if (start == 0)
		return len;
	lead = (unsigned char)text[start - 1];
	need = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
	return len - (start - 1) < need ? start - 1 : len;
}

void errmsg_setv(struct errmsg *em, const char *fmt, va_list ap)
{
	/* Written aside first: a caller that wraps a message passes em->text as an argument. */
	char text[sizeof em->text];
	int n;
	size_t len;

	if (!em)
		return;
	n = vsnprintf(text, sizeof text, fmt, ap);
	if (n < 0) {
		em->text[0] = '\0';
		return;
	}
	len = (size_t)n < sizeof text ? (size_t)n : utf8_whole(text, sizeof text - 1);
	memcpy(em->text, text, len);
	em->text[len] = '\0';
}
