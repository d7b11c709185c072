/* audit.c: see audit.h. */
#include "auth/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/list.h"
#include "base/mem.h"
#include "log/log.h"

struct line {
	struct list link;
	struct buf bytes;
};

struct audit {
	char *path;
	pthread_t thread;
	int fd;          /* the thread's; -1: could not be opened again */
	bool failing;    /* the thread's: said so already */
	uint64_t told;   /* the thread's: dropped lines that a line has told of */
	atomic_uint_fast64_t dropped;
	pthread_mutex_t mu;
	pthread_cond_t wake;
	/* guarded by mu */
	struct list lines;
	size_t len, bytes;
	bool reopen, stop;
};

static int open_file(const char *path)
{
	return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
}

/* One write a batch: a line is never torn by another process that appends. */
static void write_all(struct audit *a, struct slice bytes)
{
	while (bytes.len > 0 && a->fd >= 0) {
		ssize_t n = write(a->fd, bytes.ptr, bytes.len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		bytes = slice_of(bytes.ptr + n, bytes.len - (size_t)n);
	}
	if (bytes.len == 0) {
		a->failing = false;
		return;
	}
	for (size_t i = 0; i < bytes.len; i++)
		if (bytes.ptr[i] == '\n')
			atomic_fetch_add(&a->dropped, 1);
	if (!a->failing)
		log_error("cannot write the audit log, lines are lost", LOG_STR("path", a->path), LOG_STR("cause", strerror(errno)));
	a->failing = true;
}

static void tell_dropped(struct audit *a, struct buf *out)
{
	uint64_t dropped = atomic_load(&a->dropped);
	if (dropped == a->told)
		return;
	buf_printf(out, "{\"dropped\":%llu}\n", (unsigned long long)(dropped - a->told));
	a->told = dropped;
}

static void reopen(struct audit *a)
{
	int fd = open_file(a->path);
	if (fd < 0) {
		log_error("cannot reopen the audit log, the old file stays", LOG_STR("path", a->path), LOG_STR("cause", strerror(errno)));
		return;
	}
	close(a->fd);
	a->fd = fd;
	log_info("the audit log was reopened", LOG_STR("path", a->path));
}

static void *audit_main(void *arg)
{
	struct audit *a = arg;
	struct buf out = { .ptr = NULL };
	bool stop = false;
	while (!stop) {
		struct list *l;
		bool again;
		buf_clear(&out);
		pthread_mutex_lock(&a->mu);
		while (list_empty(&a->lines) && !a->stop && !a->reopen)
			pthread_cond_wait(&a->wake, &a->mu);
		tell_dropped(a, &out);
		while ((l = list_pop_front(&a->lines))) {
			struct line *line = CONTAINER_OF(l, struct line, link);
			buf_append_slice(&out, buf_view(&line->bytes));
			buf_append_byte(&out, '\n');
			buf_free(&line->bytes);
			free(line);
		}
		a->len = a->bytes = 0;
		again = a->reopen;
		a->reopen = false;
		stop = a->stop;
		pthread_mutex_unlock(&a->mu);
		if (again)
			reopen(a);
		write_all(a, buf_view(&out));
	}
	buf_free(&out);
	return NULL;
}

enum err audit_open(const char *path, struct audit **ret, struct errmsg *em)
{
	struct audit *a;
	int fd = open_file(path);
	if (fd < 0) {
		errmsg_set(em, "cannot open the audit log '%s': %s", path, strerror(errno));
		return ERR_IO;
	}
	a = mem_zalloc(sizeof(*a));
	a->fd = fd;
	a->path = mem_alloc(strlen(path) + 1);
	strcpy(a->path, path);
	list_init(&a->lines);
	pthread_mutex_init(&a->mu, NULL);
	pthread_cond_init(&a->wake, NULL);
	ASSERT(pthread_create(&a->thread, NULL, audit_main, a) == 0);
	*ret = a;
	return ERR_OK;
}

void audit_close(struct audit *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->mu);
	a->stop = true;
	pthread_cond_signal(&a->wake);
	pthread_mutex_unlock(&a->mu);
	pthread_join(a->thread, NULL);
	close(a->fd);
	pthread_cond_destroy(&a->wake);
	pthread_mutex_destroy(&a->mu);
	free(a->path);
	free(a);
}

void audit_line(struct audit *a, struct buf *bytes)
{
	struct line *line = mem_alloc(sizeof(*line));
	bool fits;
	line->bytes = buf_take(bytes);
	pthread_mutex_lock(&a->mu);
	fits = a->len < AUDIT_QUEUE_MAX && a->bytes + line->bytes.len <= AUDIT_QUEUE_BYTES_MAX;
	if (fits) {
		list_push_back(&a->lines, &line->link);
		a->len++;
		a->bytes += line->bytes.len;
		pthread_cond_signal(&a->wake);
	}
	pthread_mutex_unlock(&a->mu);
	if (fits)
		return;
	atomic_fetch_add(&a->dropped, 1);
	buf_free(&line->bytes);
	free(line);
}

void audit_reopen(struct audit *a)
{
	pthread_mutex_lock(&a->mu);
	a->reopen = true;
	pthread_cond_signal(&a->wake);
	pthread_mutex_unlock(&a->mu);
}

uint64_t audit_dropped(const struct audit *a)
{
	return atomic_load(&a->dropped);
}

/* ---- JSON ---- */

/* The length of the UTF-8 character that begins s; 0: it is none. */
static size_t character(struct slice s)
{
	uint8_t c = s.ptr[0];
	size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
	if (n == 0 || n > s.len)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s.ptr[i] & 0xc0) != 0x80)
			return 0;
	if ((c == 0xe0 && s.ptr[1] < 0xa0) || (c == 0xed && s.ptr[1] > 0x9f) || (c == 0xf0 && s.ptr[1] < 0x90) || (c == 0xf4 && s.ptr[1] > 0x8f))
		return 0;
	return n;
}

void audit_json_string(struct buf *out, struct slice s)
{
	buf_append_byte(out, '"');
	while (s.len > 0) {
		size_t n = character(s);
		if (n == 0) {
			buf_append(out, "\xef\xbf\xbd", 3);
			n = 1;
		} else if (s.ptr[0] == '"' || s.ptr[0] == '\\') {
			buf_printf(out, "\\%c", s.ptr[0]);
		} else if (s.ptr[0] < 0x20 || s.ptr[0] == 0x7f) {
			buf_printf(out, "\\u%04x", s.ptr[0]);
		} else {
			buf_append(out, s.ptr, n);
		}
		s = slice_of(s.ptr + n, s.len - n);
	}
	buf_append_byte(out, '"');
}
