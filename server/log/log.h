/* log.h: one structured line an event, to stderr or where else log_set_outputs says: time, level, message, then fields.
 *
 *     log_warn("cannot reach a peer", LOG_ID("member", id), LOG_STR("address", url), LOG_ERR("cause", e));
 *     2026-11-29T21:50:28.123456Z WARN cannot reach a peer member=8e9e05c52164694d address=http://127.0.0.1:2380 cause="..."
 *     {"level":"warn","ts":"2026-11-29T21:50:28.123456Z","msg":"cannot reach a peer","member":"8e9e05c52164694d", ...}
 *
 * Messages are lower case and constant; what varies is a field. Any thread; one write(2) a line, so lines never mix. Lines that do not
 * fit LOG_LINE_MAX are cut and end in an ellipsis. */
#ifndef HOLDFAST_LOG_H
#define HOLDFAST_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "errors.h"

#define LOG_LINE_MAX 2048
#define LOG_OUTPUTS_MAX 4

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

struct log_field {
	const char *key;
	enum { LOG_FIELD_NONE, LOG_FIELD_STR, LOG_FIELD_SLICE, LOG_FIELD_U64, LOG_FIELD_I64, LOG_FIELD_ID, LOG_FIELD_ERR } kind;
	union {
		const char *str;
		struct slice slice;
		uint64_t u64;
		int64_t i64;
		enum err err;
	};
};

#define LOG_STR(k, v) ((struct log_field){ .key = (k), .kind = LOG_FIELD_STR, .str = (v) })
#define LOG_SLICE(k, v) ((struct log_field){ .key = (k), .kind = LOG_FIELD_SLICE, .slice = (v) })
#define LOG_U64(k, v) ((struct log_field){ .key = (k), .kind = LOG_FIELD_U64, .u64 = (v) })
#define LOG_I64(k, v) ((struct log_field){ .key = (k), .kind = LOG_FIELD_I64, .i64 = (v) })
#define LOG_ID(k, v) ((struct log_field){ .key = (k), .kind = LOG_FIELD_ID, .u64 = (v) }) /* in hex, as etcd prints IDs */
#define LOG_ERR(k, v) ((struct log_field){ .key = (k), .kind = LOG_FIELD_ERR, .err = (v) })

void log_set_level(enum log_level level);                        /* before threads start */
void log_set_format(enum log_format format);                     /* before threads start */
/* "stderr", "stdout" or paths of files, which are appended to; before threads start. ERR_IO with em: none is changed. */
enum err log_set_outputs(const char *const *outputs, size_t len, struct errmsg *em);
bool log_parse_level(const char *text, enum log_level *ret);     /* debug, info, warn, error (panic and fatal are read as error) */
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *message, const struct log_field *fields); /* ends at LOG_FIELD_NONE */

#define LOG_AT(level, message, ...)                                                                                      \
	do {                                                                                                             \
		if (log_enabled(level))                                                                                  \
			log_write((level), (message), (const struct log_field[]){ __VA_ARGS__ __VA_OPT__(,) { .key = NULL } }); \
	} while (0)
#define log_debug(...) LOG_AT(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) LOG_AT(LOG_INFO, __VA_ARGS__)
#define log_warn(...) LOG_AT(LOG_WARN, __VA_ARGS__)
#define log_error(...) LOG_AT(LOG_ERROR, __VA_ARGS__)

#endif
