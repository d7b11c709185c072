/* log.c: formats one line in a buffer on the stack and writes it at once. */
#include "log/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static enum log_level log_level_now = LOG_INFO;

struct line {
	char text[LOG_LINE_MAX];
	size_t len;
};

static void line_byte(struct line *l, char c)
{
	/* room is kept for "...\n" */
	if (l->len < sizeof(l->text) - 4)
		l->text[l->len++] = c;
}

static void line_str(struct line *l, const char *s)
{
	while (*s)
		line_byte(l, *s++);
}

/* A value as it is when it is one plain word, else quoted, with what is not printable escaped. */
static void line_value(struct line *l, struct slice v)
{
	bool plain = v.len > 0;
	for (size_t i = 0; plain && i < v.len; i++)
		plain = v.ptr[i] > ' ' && v.ptr[i] < 0x7f && v.ptr[i] != '"' && v.ptr[i] != '=' && v.ptr[i] != '\\';
	if (!plain)
		line_byte(l, '"');
	for (size_t i = 0; i < v.len; i++) {
		uint8_t c = v.ptr[i];
		char escaped[8];
		if (plain || (c >= ' ' && c < 0x7f && c != '"' && c != '\\')) {
			line_byte(l, (char)c);
			continue;
		}
		snprintf(escaped, sizeof(escaped), c == '"' || c == '\\' ? "\\%c" : "\\x%02x", c);
		line_str(l, escaped);
	}
	if (!plain)
		line_byte(l, '"');
}

static void line_time(struct line *l)
{
	struct timespec ts;
	struct tm tm;
	char text[48];
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	size_t n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text + n, sizeof(text) - n, ".%06ldZ ", ts.tv_nsec / 1000);
	line_str(l, text);
}

static void line_field(struct line *l, const struct log_field *f)
{
	char number[32];
	line_byte(l, ' ');
	line_str(l, f->key);
	line_byte(l, '=');
	switch (f->kind) {
	case LOG_FIELD_STR:
		line_value(l, f->str ? slice_of_str(f->str) : slice_of("", 0));
		return;
	case LOG_FIELD_SLICE:
		line_value(l, f->slice);
		return;
	case LOG_FIELD_ERR:
		line_value(l, slice_of_str(f->err == ERR_OK ? "ok" : err_text(f->err)));
		return;
	case LOG_FIELD_U64:
		snprintf(number, sizeof(number), "%" PRIu64, f->u64);
		break;
	case LOG_FIELD_I64:
		snprintf(number, sizeof(number), "%" PRId64, f->i64);
		break;
	case LOG_FIELD_ID:
		snprintf(number, sizeof(number), "%" PRIx64, f->u64);
		break;
	case LOG_FIELD_NONE:
		number[0] = '\0';
	}
	line_str(l, number);
}

void log_set_level(enum log_level level)
{
	log_level_now = level;
}

bool log_parse_level(const char *text, enum log_level *ret)
{
	static const struct {
		const char *name;
		enum log_level level;
	} names[] = { { "debug", LOG_DEBUG }, { "info", LOG_INFO },   { "warn", LOG_WARN },
		      { "error", LOG_ERROR }, { "panic", LOG_ERROR }, { "fatal", LOG_ERROR } };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(text, names[i].name) == 0) {
			*ret = names[i].level;
			return true;
		}
	}
	return false;
}

bool log_enabled(enum log_level level)
{
	return level >= log_level_now;
}

void log_write(enum log_level level, const char *message, const struct log_field *fields)
{
	static const char *const names[] = { "DEBUG ", "INFO ", "WARN ", "ERROR " };
	struct line l = { .len = 0 };
	line_time(&l);
	line_str(&l, names[level]);
	line_str(&l, message);
	for (; fields->key; fields++)
		line_field(&l, fields);
	if (l.len == sizeof(l.text) - 4) {
		memcpy(l.text + l.len, "...", 3);
		l.len += 3;
	}
	l.text[l.len++] = '\n';
	/* Nothing can be done about a log that cannot be written; the service goes on. */
	if (write(STDERR_FILENO, l.text, l.len) < 0)
		return;
}
