/* log.c: formats one line in a buffer on the stack and writes it at once. */
#include "log/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static enum log_level log_level_now = LOG_INFO;
static enum log_format log_format_now = LOG_FORMAT_TEXT;
static int outputs_now[LOG_OUTPUTS_MAX] = { STDERR_FILENO };
static size_t outputs_len = 1;

/* Room that is kept: for "...\n", and for what closes an object: "...\"}\n". */
enum { ROOM_TEXT = 4, ROOM_JSON = 6 };

struct line {
	char text[LOG_LINE_MAX];
	size_t len, max;
};

static void line_byte(struct line *l, char c)
{
	if (l->len < l->max)
		l->text[l->len++] = c;
}

static bool line_is_full(const struct line *l)
{
	return l->len == l->max;
}

/* What must not be cut off; there is room. */
static void line_end(struct line *l, const char *s)
{
	size_t len = strlen(s);
	memcpy(l->text + l->len, s, len);
	l->len += len;
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
	snprintf(text + n, sizeof(text) - n, ".%06ldZ", ts.tv_nsec / 1000);
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

/* ---- as JSON ---- */

/* In quotes, which are closed in any case. Bytes beyond ASCII are written as the code points of their number: what is logged need not be UTF-8. */
static void line_json_string(struct line *l, struct slice v)
{
	if (line_is_full(l))
		return;
	line_byte(l, '"');
	for (size_t i = 0; i < v.len; i++) {
		uint8_t c = v.ptr[i];
		char escaped[8];
		if (c >= ' ' && c < 0x7f && c != '"' && c != '\\') {
			line_byte(l, (char)c);
			continue;
		}
		snprintf(escaped, sizeof(escaped), c == '"' || c == '\\' ? "\\%c" : "\\u%04x", c);
		if (l->len + strlen(escaped) > l->max) {
			l->max = l->len;
			break;
		}
		line_str(l, escaped);
	}
	if (line_is_full(l))
		line_end(l, "...");
	line_end(l, "\"");
}

static bool line_json_key(struct line *l, const char *key)
{
	if (l->len + strlen(key) + 32 > l->max)
		return false;
	line_str(l, l->len > 1 ? ",\"" : "\"");
	line_str(l, key);
	line_str(l, "\":");
	return true;
}

/* False: there is no room for more. */
static bool line_json_field(struct line *l, const struct log_field *f)
{
	char number[32];
	if (!line_json_key(l, f->key))
		return false;
	switch (f->kind) {
	case LOG_FIELD_STR:
		line_json_string(l, f->str ? slice_of_str(f->str) : slice_of("", 0));
		break;
	case LOG_FIELD_SLICE:
		line_json_string(l, f->slice);
		break;
	case LOG_FIELD_ERR:
		line_json_string(l, slice_of_str(f->err == ERR_OK ? "ok" : err_text(f->err)));
		break;
	case LOG_FIELD_U64:
		snprintf(number, sizeof(number), "%" PRIu64, f->u64);
		line_str(l, number);
		break;
	case LOG_FIELD_I64:
		snprintf(number, sizeof(number), "%" PRId64, f->i64);
		line_str(l, number);
		break;
	case LOG_FIELD_ID:
		snprintf(number, sizeof(number), "\"%" PRIx64 "\"", f->u64);
		line_str(l, number);
		break;
	case LOG_FIELD_NONE:
		line_str(l, "null");
	}
	return l->len < l->max;
}

static void line_json(struct line *l, enum log_level level, const char *message, const struct log_field *fields)
{
	static const char *const names[] = { "debug", "info", "warn", "error" };
	line_str(l, "{\"level\":\"");
	line_str(l, names[level]);
	line_str(l, "\",\"ts\":\"");
	line_time(l);
	line_str(l, "\",\"msg\":");
	line_json_string(l, slice_of_str(message));
	while (fields->key && line_json_field(l, fields))
		fields++;
	line_end(l, "}");
}

/* ---- as text ---- */

static void line_text(struct line *l, enum log_level level, const char *message, const struct log_field *fields)
{
	static const char *const names[] = { " DEBUG ", " INFO ", " WARN ", " ERROR " };
	line_time(l);
	line_str(l, names[level]);
	line_str(l, message);
	for (; fields->key; fields++)
		line_field(l, fields);
	if (line_is_full(l))
		line_end(l, "...");
}

/* ---- */

void log_set_level(enum log_level level)
{
	log_level_now = level;
}

void log_set_format(enum log_format format)
{
	log_format_now = format;
}

static int open_output(const char *output)
{
	if (strcmp(output, "stderr") == 0)
		return STDERR_FILENO;
	if (strcmp(output, "stdout") == 0)
		return STDOUT_FILENO;
	return open(output, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
}

static void close_outputs(const int *fds, size_t len)
{
	while (len) {
		if (fds[--len] > STDERR_FILENO)
			close(fds[len]);
	}
}

enum err log_set_outputs(const char *const *outputs, size_t len, struct errmsg *em)
{
	int fds[LOG_OUTPUTS_MAX];
	if (len == 0 || len > LOG_OUTPUTS_MAX) {
		errmsg_set(em, "1 to %d log outputs", LOG_OUTPUTS_MAX);
		return ERR_IO;
	}
	for (size_t i = 0; i < len; i++) {
		fds[i] = open_output(outputs[i]);
		if (fds[i] < 0) {
			errmsg_set(em, "cannot open log output '%s': %s", outputs[i], strerror(errno));
			close_outputs(fds, i);
			return ERR_IO;
		}
	}
	close_outputs(outputs_now, outputs_len);
	memcpy(outputs_now, fds, len * sizeof(fds[0]));
	outputs_len = len;
	return ERR_OK;
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
	struct line l = { .len = 0, .max = LOG_LINE_MAX - (log_format_now == LOG_FORMAT_JSON ? ROOM_JSON : ROOM_TEXT) };
	if (log_format_now == LOG_FORMAT_JSON)
		line_json(&l, level, message, fields);
	else
		line_text(&l, level, message, fields);
	line_end(&l, "\n");
	/* Nothing can be done about a log that cannot be written; the service goes on. */
	for (size_t i = 0; i < outputs_len; i++) {
		if (write(outputs_now[i], l.text, l.len) < 0)
			continue;
	}
}
