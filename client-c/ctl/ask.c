/* ask.c: see ask.h. */
#include "ask.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "signals.h"

enum {
	UNREACHABLE_MS = 3000, /* nobody lets us connect for so long: say so, before the time-out */
	ATTEMPT_MIN_MS = 1000,
	PAUSE_MS = 50,         /* between two attempts */
};

struct attempt {
	bool over;
	int code;
	char text[512];
	struct buf reply, details;
};

static void on_message(void *owner, struct slice bytes)
{
	struct attempt *t = owner;
	buf_clear(&t->reply);
	buf_append_slice(&t->reply, bytes);
}

static void on_end(void *owner, int code, const char *text, struct slice details)
{
	struct attempt *t = owner;
	t->over = true;
	t->code = code;
	snprintf(t->text, sizeof(t->text), "%s", text);
	buf_append_slice(&t->details, details);
}

static const struct call_class attempt_class = { on_message, on_end };

static bool text_is(const char *text, enum err e)
{
	return strcmp(text, err_text(e)) == 0;
}

bool was_not_done(int code, const char *text)
{
	/* Refused at the door. */
	return (code == STATUS_UNAVAILABLE && text_is(text, ERR_NO_LEADER)) || (code == STATUS_RESOURCE_EXHAUSTED && text_is(text, ERR_OVERLOADED))
		|| (code == STATUS_RESOURCE_EXHAUSTED && text_is(text, ERR_TOO_MANY_REQUESTS))
		/* A token is fetched anew. */
		|| (code == STATUS_UNAUTHENTICATED && text_is(text, ERR_AUTH_INVALID_TOKEN))
		|| (code == STATUS_INVALID_ARGUMENT && text_is(text, ERR_AUTH_OLD_REVISION));
}

bool is_passing(int code, const char *text)
{
	/* Internal, with these beginnings, is how the library tells of a broken stream. */
	return code == STATUS_UNAVAILABLE || code == STATUS_DEADLINE_EXCEEDED || code == STATUS_CANCELED || was_not_done(code, text)
		|| (code == STATUS_INTERNAL && (strncmp(text, "RST_STREAM", 10) == 0 || strncmp(text, "Received RST", 12) == 0))
		|| (code == STATUS_UNKNOWN && strncmp(text, "Stream removed", 14) == 0);
}

static bool interrupted(const struct ask *a, struct answer *ret)
{
	if (signals_stop_count() < (a->stops ? a->stops : 1))
		return false;
	ret->kind = ANSWER_INTERRUPTED;
	ret->code = signals_stopped();
	snprintf(ret->text, sizeof(ret->text), "interrupted");
	return true;
}

static bool is_write(const struct ask *a)
{
	return method_by_id(a->method)->access == METHOD_WRITE;
}

static struct endpoint *pick(struct link *l, const struct ask *a)
{
	return a->only ? link_pick_only(l, a->only - 1) : link_pick(l);
}

static void nobody(struct link *l, const struct ask *a, struct answer *ret)
{
	size_t used = 0;
	ret->kind = ret->attempts && is_write(a) ? ANSWER_UNKNOWN : ANSWER_NONE;
	ret->code = STATUS_UNAVAILABLE;
	if (ret->text[0])
		return; /* what the last one said */
	ret->text[0] = '\0';
	for (int i = 0; i < link_len(l); i++) {
		char why[200];
		int n;
		if (a->only && a->only - 1 != i)
			continue;
		link_why(l, i, why);
		n = snprintf(ret->text + used, sizeof(ret->text) - used, "%s%s: %s", used ? "; " : "no replica can be reached: ", link_name(l, i), why);
		if (n < 0 || (size_t)n >= sizeof(ret->text) - used)
			break;
		used += (size_t)n;
	}
}

static bool unreachable(const struct link *l, const struct ask *a)
{
	return a->only ? link_failed(l, a->only - 1) : link_all_failed(l);
}

/* Waits until there is one to send to. NULL: there is none, and *ret says so. */
static struct endpoint *wait_endpoint(struct link *l, const struct ask *a, uint64_t begun, uint64_t deadline, struct answer *ret)
{
	for (;;) {
		struct endpoint *e = pick(l, a);
		uint64_t now = boot_ms();
		if (interrupted(a, ret))
			return NULL;
		if (e)
			return e;
		if (now >= deadline || (!a->patient && !ret->attempts && unreachable(l, a) && now - begun >= UNREACHABLE_MS)) {
			nobody(l, a, ret);
			return NULL;
		}
		link_run(l, deadline);
	}
}

static uint64_t attempt_end(struct link *l, const struct ask *a, uint64_t deadline)
{
	uint64_t part = a->timeout_ms / (uint64_t)link_len(l);
	uint64_t end = boot_ms() + (part < ATTEMPT_MIN_MS ? ATTEMPT_MIN_MS : part);
	return a->again == ASK_ONCE || a->only || end > deadline ? deadline : end;
}

/* False: interrupted. */
static bool attempt_run(struct link *l, const struct ask *a, struct endpoint *e, uint64_t deadline, struct attempt *t, struct answer *ret)
{
	/* The library's own deadline comes a little later, in case it is needed at all. */
	struct call *c = call_start(l, e, a->method, a->request, deadline + 500, &attempt_class, t);
	ret->attempts++;
	while (!t->over) {
		if (interrupted(a, ret)) {
			call_drop(c);
			return false;
		}
		if (boot_ms() >= deadline) {
			call_drop(c);
			t->code = STATUS_DEADLINE_EXCEEDED;
			snprintf(t->text, sizeof(t->text), "no answer");
			return true;
		}
		link_run(l, deadline);
	}
	return true;
}

static void take_reply(const struct ask *a, struct attempt *t, struct answer *ret)
{
	ret->reply = message_of(method_by_id(a->method)->reply, buf_view(&t->reply));
	ret->kind = ret->reply ? ANSWER_OK : ANSWER_REFUSED;
	if (!ret->reply) {
		ret->code = STATUS_INTERNAL;
		snprintf(ret->text, sizeof(ret->text), "a reply that makes no sense");
	}
}

/* True: *ret is final. */
static bool judge(struct link *l, const struct ask *a, struct endpoint *e, struct attempt *t, struct answer *ret)
{
	snprintf(ret->where, sizeof(ret->where), "%s", endpoint_name(e));
	ret->code = t->code;
	if (t->code == STATUS_OK) {
		take_reply(a, t, ret);
		return true;
	}
	snprintf(ret->text, sizeof(ret->text), "%s", t->text);
	if (was_not_done(t->code, t->text))
		ret->attempts--;
	else if (is_passing(t->code, t->text) && a->again == ASK_ONCE && !t->details.len) { /* with details the cell has refused it */
		ret->kind = ANSWER_UNKNOWN;
		return true;
	}
	if (is_passing(t->code, t->text) && !t->details.len) {
		link_pass(l, e);
		return false;
	}
	ret->kind = ANSWER_REFUSED;
	buf_append_slice(&ret->details, buf_view(&t->details));
	return true;
}

static void pause_a_moment(struct link *l, const struct ask *a)
{
	uint64_t until = boot_ms() + PAUSE_MS;
	while (boot_ms() < until && signals_stop_count() < (a->stops ? a->stops : 1))
		link_run(l, until);
}

void ask(struct link *l, const struct ask *a, struct answer *ret)
{
	uint64_t begun = boot_ms(), deadline = begun + a->timeout_ms;
	bool final = false;
	memset(ret, 0, sizeof(*ret));
	while (!final) {
		struct attempt t = { .over = false };
		struct endpoint *e = wait_endpoint(l, a, begun, deadline, ret);
		if (!e)
			return;
		final = !attempt_run(l, a, e, attempt_end(l, a, deadline), &t, ret) || judge(l, a, e, &t, ret);
		buf_free(&t.reply);
		buf_free(&t.details);
		if (!final && boot_ms() + PAUSE_MS >= deadline) {
			nobody(l, a, ret);
			return;
		}
		if (!final)
			pause_a_moment(l, a);
	}
}

void answer_free(struct answer *a)
{
	if (a->reply)
		protobuf_c_message_free_unpacked(a->reply, NULL);
	buf_free(&a->details);
	memset(a, 0, sizeof(*a));
}
