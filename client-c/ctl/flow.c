/* flow.c: see flow.h. */
#include "flow.h"

#include <stdio.h>

#include "base/clock.h"
#include "signals.h"

enum { RETRY_MS = 200, OPEN_MS = 2000 /* the first reply of a replica; then another one is asked */ };

void flow_end(struct flow *f, int code, const char *text)
{
	f->over = true;
	f->code = code;
	if (text)
		ctl_error("cannot %s: %s", f->class->what, text);
}

static void on_message(void *owner, struct slice bytes)
{
	struct flow *f = owner;
	ProtobufCMessage *m;
	if (f->over)
		return;
	m = message_of(method_by_id(f->class->method)->reply, bytes);
	if (!m) {
		flow_end(f, EXIT_FAILED, "a reply that makes no sense");
		return;
	}
	f->heard = true;
	f->class->reply(f, m);
	protobuf_c_message_free_unpacked(m, NULL);
	if (!out_flush() && !f->over)
		flow_end(f, out_failed(), NULL);
}

static void on_end(void *owner, int code, const char *text, struct slice details)
{
	struct flow *f = owner;
	(void)details;
	f->call = NULL;
	if (f->over)
		return;
	if (code != STATUS_OK && !is_passing(code, text)) {
		snprintf(f->why, sizeof(f->why), "%s, asked of %s", text, endpoint_name(f->at));
		flow_end(f, EXIT_FAILED, f->why);
		return;
	}
	snprintf(f->why, sizeof(f->why), "%s", text);
	link_pass(f->c->link, f->at);
	f->retry_ms = boot_ms() + RETRY_MS;
}

static const struct call_class class = { on_message, on_end };

static void leave_silent(struct flow *f)
{
	call_drop(f->call);
	f->call = NULL;
	link_pass(f->c->link, f->at);
	snprintf(f->why, sizeof(f->why), "no answer");
}

static void open_when_due(struct flow *f)
{
	uint64_t now = boot_ms();
	if (f->call && !f->heard && now >= f->opened_ms + OPEN_MS && link_len(f->c->link) > 1)
		leave_silent(f);
	if (f->call || now < f->retry_ms)
		return;
	f->at = link_pick(f->c->link);
	if (!f->at)
		return;
	f->heard = false;
	f->opened_ms = now;
	f->call = f->class->open(f, f->at, &class);
}

static void give_up(struct flow *f)
{
	struct answer none = { .kind = ANSWER_NONE };
	if (f->why[0])
		snprintf(none.text, sizeof(none.text), "%s", f->why);
	else
		link_why(f->c->link, 0, none.text);
	f->over = true;
	f->code = ctl_failed(&none, "cannot %s", f->class->what);
}

int flow_run(struct flow *f)
{
	uint64_t begun = boot_ms();
	bool ever = false;
	while (!f->over && !signals_stopped()) {
		uint64_t now = boot_ms();
		ever |= f->heard;
		open_when_due(f);
		if (!ever && now >= begun + f->c->args.timeout_ms) {
			give_up(f);
			break;
		}
		link_run(f->c->link, f->call ? (f->heard ? NEVER_MS : now + OPEN_MS) : now + RETRY_MS);
	}
	call_drop(f->call);
	f->call = NULL;
	return signals_stopped() ? EXIT_SIGNAL + signals_stopped() : f->code;
}
