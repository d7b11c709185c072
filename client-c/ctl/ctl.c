/* ctl.c: see ctl.h. */
#include "ctl.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "signals.h"
#include "text.h"

static void errorv(const char *tail, const char *fmt, va_list ap)
{
	char line[1024];
	vsnprintf(line, sizeof(line), fmt, ap);
	/* One line, whatever was put into it. */
	for (char *p = line; *p; p++) {
		if (*p == '\n' || *p == '\r')
			*p = ' ';
	}
	fflush(stdout);
	fprintf(stderr, "holdfastctl: %s%s\n", line, tail);
}

void ctl_error(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	errorv("", fmt, ap);
	va_end(ap);
}

int ctl_failure_code(const struct answer *a)
{
	switch (a->kind) {
	case ANSWER_OK:
		return EXIT_DONE;
	case ANSWER_REFUSED:
		return EXIT_FAILED;
	case ANSWER_NONE:
	case ANSWER_UNKNOWN:
		return EXIT_NO_ANSWER;
	case ANSWER_INTERRUPTED:
		return EXIT_SIGNAL + a->code;
	}
	return EXIT_FAILED;
}

int ctl_failed(const struct answer *a, const char *fmt, ...)
{
	char tail[1024];
	va_list ap;
	snprintf(tail, sizeof(tail), "%s%s: %s%s", *a->where ? ", asked of " : "", a->where, *a->text ? a->text : "no answer",
		 a->kind == ANSWER_UNKNOWN ? " (it may or may not have been done)" : "");
	va_start(ap, fmt);
	if (a->kind != ANSWER_INTERRUPTED)
		errorv(tail, fmt, ap);
	va_end(ap);
	return ctl_failure_code(a);
}

const char *ctl_show(const struct ctl *c, struct slice s)
{
	static char turns[4][100];
	static unsigned turn;
	char *ret = turns[turn++ % 4];
	struct buf b = { .ptr = NULL };
	bool cut = s.len > 64;
	const struct out plain = { .hex = c->out.hex || !text_is_utf8(s) };
	if (cut)
		s.len = 64;
	out_bytes(&plain, s, &b);
	snprintf(ret, 100, "%.*s%s", (int)(b.len > 90 ? 90 : b.len), b.ptr ? (const char *)b.ptr : "", cut || b.len > 90 ? "..." : "");
	buf_free(&b);
	return ret;
}

bool ctl_bytes(const struct ctl *c, const char *word, struct buf *ret)
{
	struct errmsg em;
	if (!c->args.hex) {
		buf_append(ret, word, strlen(word));
		return true;
	}
	if (text_hex(word, ret, &em))
		return true;
	ctl_error("--hex: %s", em.text);
	return false;
}

int ctl_read_input(struct buf *ret, size_t max)
{
	char chunk[65536];
	for (;;) {
		struct pollfd p[2] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .fd = signals_fd(), .events = POLLIN } };
		ssize_t n;
		if (poll(p, 2, -1) < 0 && errno != EINTR) {
			ctl_error("cannot wait for standard input: %s", strerror(errno));
			return EXIT_FAILED;
		}
		if (signals_stopped())
			return EXIT_SIGNAL + signals_stopped();
		if (!p[0].revents)
			continue;
		n = read(STDIN_FILENO, chunk, sizeof(chunk));
		if (n < 0 && errno != EINTR && errno != EAGAIN) {
			ctl_error("cannot read standard input: %s", strerror(errno));
			return EXIT_FAILED;
		}
		if (n == 0)
			return EXIT_DONE;
		if (n > 0)
			buf_append(ret, chunk, (size_t)n);
		if (ret->len > max) {
			ctl_error("standard input has more than %zu bytes", max);
			return EXIT_FAILED;
		}
	}
}

int ctl_run(struct ctl *c, enum method_id method, const ProtobufCMessage *request, enum ask_again again, print_fn simple, const char *fmt, ...)
{
	const struct ask a = { .method = method, .request = request, .again = again, .timeout_ms = c->args.timeout_ms,
			       .patient = args_given(&c->args, FLAG_TIMEOUT) };
	struct answer answer;
	char what[300];
	va_list ap;
	int code;
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	ask(c->link, &a, &answer);
	if (answer.kind != ANSWER_OK) {
		code = ctl_failed(&answer, "cannot %s", what);
	} else {
		if (!out_message(&c->out, answer.reply) && simple)
			simple(c, answer.reply);
		code = EXIT_DONE;
	}
	answer_free(&answer);
	return code;
}
