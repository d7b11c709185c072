/* hold.c: from a lease to the release; see hold.h.
 *
 *   (H1) nothing runs, and nothing is said to be held, past our own view of the lease's end. COMMAND gets SIGTERM a quarter of the TTL (at most 5 s) before it, and
 *        SIGKILL at the end; at once when the cell says that the hold is over.
 *   (H2) whatever way it ends, short of SIGKILL to ourselves, the hold is released and the lease revoked, for a bounded time; then the lease's end frees it.
 *   (H3) the question is asked again whenever its replica fails: the lease is its identity, so it keeps its place. */
#include "hold.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "child.h"
#include "etcd/rpc.pb-c.h"
#include "follow.h"
#include "refusal.h"
#include "signals.h"
#include "text.h"

enum {
	RETRY_MS = 100,
	TERM_MAX_MS = 5000,
	KILL_MARGIN_MS = 50,   /* before the end, so that it is over by then */
	KILL_AGAIN_MS = 50,
	STOP_GRACE_MS = 5000,  /* between SIGTERM and SIGKILL when we are asked to stop */
	RELEASE_MS = 3000,
	NOTICE_MS = 1000,      /* a wait so long is told on a terminal */
};

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static const char *shown_name(const struct hold *h)
{
	return ctl_show(h->c, buf_view(&h->name));
}

/* ---- the lease ---- */

static int64_t random_lease(void)
{
	uint64_t id = 0;
	while ((id & INT64_MAX) == 0)
		ASSERT(getrandom(&id, sizeof(id), 0) == sizeof(id));
	return (int64_t)(id & INT64_MAX);
}

static int grant(struct hold *h)
{
	Etcdserverpb__LeaseGrantRequest r = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;
	/* An ID of our own choice makes it a question that can be asked again. */
	struct ask a = { .method = METHOD_LEASE_GRANT, .request = &r.base, .again = ASK_AGAIN, .timeout_ms = h->c->args.timeout_ms,
			 .patient = args_given(&h->c->args, FLAG_TIMEOUT) };
	struct answer answer;
	uint64_t sent = boot_ms();
	int code = EXIT_DONE;
	r.id = random_lease();
	r.ttl = h->c->args.ttl_s;
	ask(h->c->link, &a, &answer);
	session_init(&h->session, h->c->link, r.id);
	h->has_lease = answer.kind == ANSWER_OK || answer.kind == ANSWER_UNKNOWN || answer.attempts > 0;
	if (answer.kind == ANSWER_OK)
		session_granted(&h->session, sent, ((const Etcdserverpb__LeaseGrantResponse *)answer.reply)->ttl);
	else if (answer.kind == ANSWER_REFUSED && answer.attempts > 1 && strcmp(answer.text, err_text(ERR_LEASE_EXISTS)) == 0)
		h->session.end_ms = sent + 1000; /* an earlier attempt was carried out; the first renewal tells the rest */
	else
		code = ctl_failed(&answer, "cannot get a lease for %s '%s'", h->class->noun, shown_name(h));
	answer_free(&answer);
	return code;
}

/* ---- the question ---- */

static void on_reply(void *owner, struct slice bytes)
{
	struct hold *h = owner;
	h->granted = h->class->take_reply(h, bytes);
}

static bool is_held(int code, const char *text)
{
	return (code == STATUS_FAILED_PRECONDITION && strcmp(text, err_text(ERR_LOCK_HELD)) == 0)
		|| (code == STATUS_DEADLINE_EXCEEDED && strcmp(text, err_text(ERR_LOCK_WAIT_TIMEOUT)) == 0);
}

static void on_end(void *owner, int code, const char *text, struct slice details)
{
	struct hold *h = owner;
	h->call = NULL;
	if (h->granted)
		return;
	if (!is_held(code, text) && (code == STATUS_OK || is_passing(code, text))) {
		link_pass(h->c->link, h->at);
		h->retry_ms = boot_ms() + RETRY_MS;
		return;
	}
	h->refused = true;
	h->code = code;
	snprintf(h->text, sizeof(h->text), "%s", text);
	snprintf(h->where, sizeof(h->where), "%s", endpoint_name(h->at));
	buf_append_slice(&h->details, details);
}

static const struct call_class question_class = { on_reply, on_end };

static void ask_when_due(struct hold *h, uint64_t wait_until)
{
	uint64_t now = boot_ms();
	if (h->call || now < h->retry_ms)
		return;
	h->at = link_pick(h->c->link);
	if (!h->at)
		return;
	h->call = h->class->ask_start(h, h->at, wait_until != NEVER_MS, (int64_t)(wait_until > now ? wait_until - now : 0), &question_class);
}

static int tell_refusal(struct hold *h)
{
	if (is_held(h->code, h->text)) {
		refusal_print(h->c, h->class->noun, buf_view(&h->name), buf_view(&h->details));
		return EXIT_HELD;
	}
	ctl_error("cannot get %s '%s', asked of %s: %s", h->class->noun, shown_name(h), h->where, h->text);
	return EXIT_FAILED;
}

static int over_before_held(struct hold *h)
{
	if (h->session.gone) {
		ctl_error("cannot get %s '%s': the lease has ended while waiting", h->class->noun, shown_name(h));
		return EXIT_FAILED;
	}
	ctl_error("cannot get %s '%s': no replica answers", h->class->noun, shown_name(h));
	return EXIT_NO_ANSWER;
}

/* A replica that does not answer keep-alives will not answer the question either. */
static void leave_with_session(struct hold *h, uint64_t *failovers)
{
	if (*failovers == h->session.failovers)
		return;
	*failovers = h->session.failovers;
	if (h->call && h->at == h->session.left) {
		call_drop(h->call);
		h->call = NULL;
	}
}

static int acquire(struct hold *h)
{
	const struct args *a = &h->c->args;
	uint64_t begun = boot_ms(), failovers = 0;
	uint64_t until = a->try_only ? begun : args_given(a, FLAG_WAIT) ? begun + a->wait_ms : NEVER_MS;
	uint64_t notice = isatty(STDERR_FILENO) ? begun + NOTICE_MS : NEVER_MS;
	/* The cell keeps the bound; when it does not answer at all, we do. */
	uint64_t give_up = until == NEVER_MS ? NEVER_MS : until + a->timeout_ms;
	while (!h->granted) {
		uint64_t next = session_run(&h->session), now = boot_ms();
		if (signals_stopped())
			return EXIT_SIGNAL + signals_stopped();
		if (h->refused)
			return tell_refusal(h);
		if (h->session.gone || now >= h->session.end_ms || now >= give_up)
			return over_before_held(h);
		if (now >= notice) {
			fprintf(stderr, "waiting for %s '%s'\n", h->class->noun, shown_name(h));
			notice = NEVER_MS;
		}
		leave_with_session(h, &failovers);
		ask_when_due(h, until);
		if (!h->call)
			next = earlier(next, now + RETRY_MS);
		link_run(h->c->link, earlier(earlier(next, notice), earlier(h->session.end_ms, give_up)));
	}
	return EXIT_DONE;
}

/* ---- holding ---- */

struct holding {
	struct follow follow;
	uint64_t failovers;
};

/* Renews and listens; true when the hold is over, as far as the cell says. */
static bool holding_run(struct hold *h, struct holding *g, uint64_t *ret_next)
{
	*ret_next = session_run(&h->session);
	if (g->failovers != h->session.failovers) {
		g->failovers = h->session.failovers;
		follow_leave(&g->follow, h->session.left);
	}
	*ret_next = earlier(*ret_next, follow_run(&g->follow));
	return h->session.gone || g->follow.deleted;
}

static int lost(struct hold *h, const struct holding *g)
{
	ctl_error("lost %s '%s': %s", h->class->noun, shown_name(h),
		  h->session.gone || g->follow.deleted ? "the lease was revoked, or the hold was broken" : "the lease could not be renewed in time");
	return EXIT_LOST;
}

static int hold_only(struct hold *h, struct holding *g)
{
	h->class->print(h);
	if (!out_flush())
		return out_failed();
	while (!signals_stopped()) {
		uint64_t next;
		if (holding_run(h, g, &next) || boot_ms() >= h->session.end_ms)
			return lost(h, g);
		link_run(h->c->link, earlier(next, h->session.end_ms));
	}
	return EXIT_DONE;
}

/* ---- COMMAND ---- */

enum phase { PHASE_RUNS, PHASE_TERM, PHASE_KILL };

struct running {
	struct child child;
	enum phase phase;
	bool lost;
	uint64_t stop_kill_ms; /* SIGKILL for having been asked to stop */
	uint64_t kill_again_ms;
};

/* SIGTERM so long before the end. */
static uint64_t term_ms(const struct hold *h)
{
	return earlier((uint64_t)h->session.ttl_s * 250, TERM_MAX_MS);
}

static void set_term(struct running *r)
{
	r->phase = PHASE_TERM;
	child_signal_all(SIGTERM);
	child_signal_all(SIGCONT); /* a stopped one would not hear it */
}

static void steer(struct hold *h, struct running *r, bool over)
{
	uint64_t now = boot_ms(), end = h->session.end_ms;
	if (over || now + term_ms(h) >= end)
		r->lost = true;
	if (r->phase == PHASE_RUNS && (r->lost || signals_stopped())) {
		r->stop_kill_ms = r->lost ? NEVER_MS : now + STOP_GRACE_MS;
		set_term(r);
	}
	if (r->phase == PHASE_TERM && (over || now + KILL_MARGIN_MS >= end || now >= r->stop_kill_ms || signals_stop_count() > 1))
		r->phase = PHASE_KILL;
	if (r->phase == PHASE_KILL && now >= r->kill_again_ms) {
		child_signal_all(SIGKILL);
		r->kill_again_ms = now + KILL_AGAIN_MS;
	}
}

static uint64_t steer_next(const struct hold *h, const struct running *r)
{
	switch (r->phase) {
	case PHASE_RUNS:
		return h->session.end_ms - term_ms(h);
	case PHASE_TERM:
		return earlier(h->session.end_ms - KILL_MARGIN_MS, r->stop_kill_ms);
	case PHASE_KILL:
		break;
	}
	return r->kill_again_ms;
}

static int cannot_run(const struct hold *h, int e)
{
	ctl_error("cannot run '%s': %s", h->c->args.run[0], strerror(e));
	return e == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
}

static int start_command(struct hold *h, struct running *r)
{
	struct buf name = { .ptr = NULL };
	char token[64], lease[64], id[24];
	char *env[4] = { NULL, token, lease, NULL };
	int e;
	text_print_lease(id, h->session.lease);
	snprintf(token, sizeof(token), "HOLDFAST_TOKEN=%" PRId64, h->token);
	snprintf(lease, sizeof(lease), "HOLDFAST_LEASE=%s", id);
	buf_printf(&name, "%s=", h->class->name_variable);
	buf_append_slice(&name, buf_view(&h->name));
	buf_append_byte(&name, 0);
	env[0] = (char *)name.ptr;
	fprintf(stderr, "holding %s '%s' token %" PRId64 " lease %s\n", h->class->noun, shown_name(h), h->token, id);
	/* H1: what was written may have taken its time. */
	if (boot_ms() + term_ms(h) >= h->session.end_ms) {
		ctl_error("lost %s '%s' before '%s' was started", h->class->noun, shown_name(h), h->c->args.run[0]);
		e = -1;
	} else {
		e = child_start(&r->child, h->c->args.run, env);
	}
	buf_free(&name);
	return e < 0 ? EXIT_LOST : e ? cannot_run(h, e) : EXIT_DONE;
}

static int hold_command(struct hold *h, struct holding *g)
{
	struct running r = { .phase = PHASE_RUNS, .stop_kill_ms = NEVER_MS };
	int code = start_command(h, &r);
	if (code)
		return code;
	for (;;) {
		uint64_t next;
		bool over = holding_run(h, g, &next);
		signals_child_changed();
		child_reap(&r.child);
		/* Of what it left running we wait only when it was ended. */
		if (r.child.over && (r.phase == PHASE_RUNS || !child_any_left()))
			break;
		steer(h, &r, over);
		if (r.child.over)
			next = earlier(next, boot_ms() + KILL_AGAIN_MS);
		link_run(h->c->link, earlier(next, steer_next(h, &r)));
	}
	return r.lost ? lost(h, g) : child_exit_code(&r.child);
}

/* ---- the end ---- */

static void revoke_lease(struct hold *h)
{
	Etcdserverpb__LeaseRevokeRequest r = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;
	struct ask a = { .method = METHOD_LEASE_REVOKE, .request = &r.base, .again = ASK_AGAIN, .timeout_ms = RELEASE_MS, .stops = 2 };
	struct answer answer;
	r.id = h->session.lease;
	ask(h->c->link, &a, &answer);
	if (answer.kind != ANSWER_OK && !(answer.kind == ANSWER_REFUSED && answer.code == STATUS_NOT_FOUND))
		ctl_error("cannot release %s '%s' (%s): it is free when its lease has ended, within %" PRId64 "s", h->class->noun, shown_name(h), answer.text,
			  h->session.ttl_s);
	answer_free(&answer);
}

/* H2 */
static int release(struct hold *h, int code)
{
	struct answer answer;
	if (h->granted && code != EXIT_LOST) {
		h->class->release(h, &answer, earlier(h->c->args.timeout_ms, RELEASE_MS));
		if (answer.kind == ANSWER_REFUSED && answer.attempts == 1) {
			ctl_error("lost %s '%s' before it was released: %s", h->class->noun, shown_name(h), answer.text);
			code = EXIT_LOST;
		}
		answer_free(&answer);
	}
	if (h->has_lease && !h->session.gone)
		revoke_lease(h);
	return code;
}

static int ask_and_hold(struct hold *h)
{
	struct holding g;
	int code = grant(h);
	if (!code)
		code = acquire(h);
	call_drop(h->call);
	h->call = NULL;
	if (code) /* another meaning than COMMAND's own codes */
		return h->c->args.run && code < EXIT_LOST ? EXIT_NOT_RUN : code;
	signals_guard();
	follow_init(&g.follow, h->c->link, buf_view(&h->key), h->token);
	g.failovers = h->session.failovers;
	code = h->c->args.run ? hold_command(h, &g) : hold_only(h, &g);
	follow_deinit(&g.follow);
	return code;
}

int hold_run(const struct hold_class *class, struct ctl *c)
{
	struct hold h = { .class = class, .c = c };
	int code = EXIT_USAGE;
	if (c->args.try_only && args_given(&c->args, FLAG_WAIT)) {
		ctl_error("--try and --wait exclude each other");
		return EXIT_USAGE;
	}
	signals_follow_parent();
	if (ctl_bytes(c, c->args.words[0], &h.name) && (c->args.words_len < 2 || ctl_bytes(c, c->args.words[1], &h.value))) {
		code = ask_and_hold(&h);
		session_deinit(&h.session);
		code = release(&h, code);
	}
	buf_free(&h.name);
	buf_free(&h.value);
	buf_free(&h.key);
	buf_free(&h.details);
	if (h.reply)
		protobuf_c_message_free_unpacked(h.reply, NULL);
	return code;
}
