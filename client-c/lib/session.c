/* session.c: a session as the client's thread runs it: what its core decides is carried out, and what happens is told to the core; see lib.h. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "lib.h"

/* ---- asks ---- */

struct ask *ask_new(struct hf_session *s, enum ask_kind kind, hf_callback callback, void *arg)
{
	struct ask *a = mem_zalloc(sizeof(*a));
	a->kind = kind;
	a->session = s;
	a->callback = callback;
	a->arg = arg;
	return a;
}

void ask_free(struct ask *a)
{
	if (!a)
		return;
	free(a->lock);
	buf_free(&a->name);
	free(a);
}

void session_ask(struct hf_session *s, struct ask *a, struct sess_ask *what)
{
	struct sess_event e = { .kind = SESS_ASK, .now_ms = boot_ms() };
	a->tag = what->tag = ++s->next_tag;
	map64_put(&s->asks, a->tag, a);
	e.ask = *what;
	sess_step(s->core, &e);
	session_poke(s);
}

void session_poke(struct hf_session *s)
{
	struct hf_client *c = s->client;
	pthread_mutex_lock(&c->mu);
	if (!s->dirty) {
		s->dirty = true;
		list_push_back(&c->dirty, &s->dirty_node);
	}
	pthread_mutex_unlock(&c->mu);
	if (!client_is_here(c))
		client_wake(c);
}

void session_forget(struct hf_session *s, uint64_t tag)
{
	/* First: who tells of it has the ask in hand. */
	while (s->telling == tag && !client_is_here(s->client))
		pthread_cond_wait(&s->quiet, &s->mu);
	ask_free(map64_remove(&s->asks, tag));
}

/* ---- what happens ---- */

static void happened(struct hf_session *s, struct sess_event *e)
{
	pthread_mutex_lock(&s->mu);
	e->now_ms = boot_ms(); /* C4 */
	sess_step(s->core, e);
	session_poke(s);
	pthread_mutex_unlock(&s->mu);
}

static void stream_message(void *owner, struct io *io, struct slice bytes)
{
	struct hf_session *s = owner;
	struct sess_event e = { .kind = SESS_STREAM_MESSAGE, .stream = s->stream_number, .bytes = bytes };
	(void)io;
	happened(s, &e);
}

static void stream_end(void *owner, struct io *io, int status, struct slice text, struct slice details)
{
	struct hf_session *s = owner;
	struct sess_event e = { .kind = SESS_STREAM_ENDED, .stream = s->stream_number, .status = status, .text = text, .details = details };
	(void)io;
	s->stream = NULL;
	happened(s, &e);
}

static const struct io_class stream_class = { stream_message, stream_end };

void session_heard(struct hf_session *s, uint32_t endpoint, bool serves)
{
	struct sess_event e = { .kind = SESS_HEARD, .endpoint = endpoint, .serves = serves };
	happened(s, &e);
}

static void call_message(void *owner, struct io *io, struct slice bytes)
{
	struct io_call *c = owner;
	struct sess_event e = { .kind = SESS_PART, .call = c->call, .attempt = c->attempt, .bytes = bytes };
	(void)io;
	if (c->streamed) {
		happened(c->session, &e);
	} else {
		buf_clear(&c->reply);
		buf_append_slice(&c->reply, bytes);
	}
}

static void io_call_free(struct io_call *c)
{
	list_remove(&c->node);
	buf_free(&c->reply);
	free(c);
}

static void call_end(void *owner, struct io *io, int status, struct slice text, struct slice details)
{
	struct io_call *c = owner;
	struct sess_event e = { .kind = SESS_REPLY, .call = c->call, .attempt = c->attempt, .status = status, .text = text, .details = details };
	(void)io;
	e.bytes = buf_view(&c->reply);
	happened(c->session, &e);
	io_call_free(c);
}

static const struct io_class call_class = { call_message, call_end };

/* ---- carrying out ---- */

static void connect(struct hf_session *s, const struct sess_out *o)
{
	struct io_start start = { .endpoint = o->endpoint, .method = METHOD_SESSION_CONNECT, .deadline_ms = SESS_NEVER, .keep_open = true };
	io_drop(s->stream);
	s->stream_number = o->stream;
	s->stream = io_new(s->client, &start, &stream_class, s);
}

static void call(struct hf_session *s, struct sess_out *o)
{
	struct io_start start = { .endpoint = o->endpoint, .method = o->method, .deadline_ms = o->deadline_ms, .keep_open = o->keep_open,
				  .request_id = o->request_id, .first_unanswered = o->first_unanswered };
	struct io_call *c = mem_zalloc(sizeof(*c));
	pthread_mutex_lock(&s->mu);
	start.session = sess_id(s->core);
	pthread_mutex_unlock(&s->mu);
	c->session = s;
	c->call = o->call;
	c->attempt = o->attempt;
	c->streamed = method_by_id(o->method)->stream != METHOD_UNARY;
	list_push_back(&s->calls, &c->node);
	c->io = io_new(s->client, &start, &call_class, c);
	io_send(c->io, &o->bytes);
}

static void cancel(struct hf_session *s, const struct sess_out *o)
{
	LIST_FOR_EACH(it, &s->calls) {
		struct io_call *c = CONTAINER_OF(it, struct io_call, node);
		if (c->call == o->call && c->attempt == o->attempt) {
			io_drop(c->io);
			io_call_free(c);
			return;
		}
	}
}

/* ---- telling: C2, C3 ---- */

/* Takes the ask's callback to be run without the lock; last: it is told no more. NULL: nobody is there. */
static struct ask *begin_telling(struct hf_session *s, uint64_t tag, bool last)
{
	struct ask *a;
	pthread_mutex_lock(&s->mu);
	a = last ? map64_remove(&s->asks, tag) : map64_get(&s->asks, tag);
	if (a)
		s->telling = tag;
	pthread_mutex_unlock(&s->mu);
	return a;
}

static void end_telling(struct hf_session *s)
{
	pthread_mutex_lock(&s->mu);
	s->telling = 0;
	pthread_cond_broadcast(&s->quiet);
	pthread_mutex_unlock(&s->mu);
}

static bool is_last(const struct ask *a, const struct sess_out *o)
{
	switch (a->kind) {
	case ASK_LOCK:
	case ASK_WATCH: return o->code != HF_OK; /* lives on as a lock or an armed watch */
	case ASK_TOLD: return o->code != HF_OK && o->code != HF_NOT_FOUND;
	default: return true;
	}
}

static void answered(struct hf_session *s, const struct sess_out *o)
{
	struct ask *a, copy;
	struct told t;
	bool last;
	a = begin_telling(s, o->tag, false);
	if (!a)
		return;
	copy = *a;
	last = is_last(a, o);
	told_init(&t, o, buf_view(&a->name));
	if (copy.kind == ASK_LOCK && o->code == HF_OK) {
		t.result.lock = copy.lock;
		pthread_mutex_lock(&s->mu);
		a->lock = NULL; /* the application's now */
		a->arg = copy.lock;
		a->callback = NULL;
		pthread_mutex_unlock(&s->mu);
	} else if (copy.kind == ASK_WATCH && t.result.code == HF_NOT_FOUND) {
		t.result.code = HF_OK; /* armed; that there is no such node is what it shows */
	}
	if (last) {
		pthread_mutex_lock(&s->mu);
		map64_remove(&s->asks, o->tag);
		pthread_mutex_unlock(&s->mu);
		ask_free(a);
	}
	if (copy.kind == ASK_CLOSE)
		s->freeing = true;
	if (copy.callback)
		copy.callback(copy.arg, &t.result);
	told_deinit(&t);
	end_telling(s);
}

static void fired(struct hf_session *s, const struct sess_out *o)
{
	struct ask *a = begin_telling(s, o->tag, true);
	char *path;
	if (!a)
		return;
	path = mem_alloc(o->text.len + 1);
	memcpy(path, o->text.ptr, o->text.len);
	path[o->text.len] = 0;
	a->fired(a->fired_arg, a->watch, o->code, o->change, path, o->revision);
	free(path);
	ask_free(a);
	end_telling(s);
}

static void lost(struct hf_session *s, const struct sess_out *o)
{
	struct ask *a = begin_telling(s, o->tag, false);
	struct hf_lock *l;
	if (!a)
		return;
	l = a->arg; /* since it was granted */
	pthread_mutex_lock(&s->mu);
	l->lost = o->reason;
	pthread_mutex_unlock(&s->mu);
	if (l->on_lost)
		l->on_lost(l->arg, l, o->reason);
	end_telling(s);
}

static void carry_out(struct hf_session *s, struct sess_out *o)
{
	switch (o->kind) {
	case SESS_CONNECT: connect(s, o); break;
	case SESS_SEND:
		if (s->stream && o->stream == s->stream_number)
			io_send(s->stream, &o->bytes);
		break;
	case SESS_DROP:
		if (o->stream == s->stream_number) {
			io_drop(s->stream);
			s->stream = NULL;
		}
		break;
	case SESS_PROBE: probe_ask(s, o->endpoint); break;
	case SESS_CALL: call(s, o); break;
	case SESS_CANCEL: cancel(s, o); break;
	case SESS_ANSWER:
	case SESS_TOLD: answered(s, o); break;
	case SESS_FIRED: fired(s, o); break;
	case SESS_STATE:
		if (s->on_state)
			s->on_state(s->arg, s, o->state, o->reason);
		break;
	case SESS_LOST: lost(s, o); break;
	}
}

static void session_free(struct hf_session *s)
{
	struct hf_client *c = s->client;
	uint64_t tag;
	size_t pos = 0;
	void *a;
	pthread_mutex_lock(&c->mu);
	if (s->dirty)
		list_remove(&s->dirty_node);
	pthread_mutex_unlock(&c->mu);
	heap_remove(&c->timers, &s->timer);
	list_remove(&s->probing_node);
	io_drop(s->stream);
	while (!list_empty(&s->calls)) {
		struct io_call *k = CONTAINER_OF(s->calls.next, struct io_call, node);
		io_drop(k->io);
		io_call_free(k);
	}
	while (map64_next(&s->asks, &pos, &tag, &a))
		ask_free(a);
	map64_deinit(&s->asks);
	sess_free(s->core);
	pthread_cond_destroy(&s->quiet);
	pthread_mutex_destroy(&s->mu);
	free(s);
}

void session_work(struct hf_session *s)
{
	struct sess_event tick = { .kind = SESS_TICK };
	struct sess_update u;
	uint64_t next;
	pthread_mutex_lock(&s->mu);
	tick.now_ms = boot_ms();
	if (sess_next_ms(s->core) <= tick.now_ms)
		sess_step(s->core, &tick);
	sess_take(s->core, &u);
	next = sess_next_ms(s->core);
	pthread_mutex_unlock(&s->mu);
	if (next == SESS_NEVER)
		heap_remove(&s->client->timers, &s->timer);
	else
		heap_update(&s->client->timers, &s->timer, next);
	for (size_t i = 0; i < u.len && !s->freeing; i++)
		carry_out(s, &u.at[i]);
	sess_update_free(&u);
	if (s->freeing)
		session_free(s);
}

/* ---- opening and closing ---- */

static bool options_ok(const struct hf_session_options *o)
{
	size_t prefixes = 0;
	if (o->ttl_s < 0 || o->cache_max > 10000 || (o->name && strlen(o->name) > 256))
		return false;
	for (const char *const *p = o->cache_prefixes; p && *p; p++, prefixes++) {
		if (strcmp(*p, "/") != 0 && !path_is_ok(*p))
			return false;
	}
	return prefixes <= 16;
}

enum hf_code hf_session_open_async(struct hf_client *client, const struct hf_session_options *options, uint32_t timeout_ms, hf_callback callback, void *arg,
				   struct hf_session **ret_session)
{
	static const struct hf_session_options usual = { .ttl_s = 0 };
	const struct hf_session_options *o = options ? options : &usual;
	struct sess_config config = { .endpoints = client->endpoints_len, .ttl_s = o->ttl_s, .grace_ms = o->grace_ms ? o->grace_ms : 45000,
				      .cache_max = o->cache_max ? o->cache_max : 4096, .cache_prefixes = o->cache_prefixes, .name = o->name };
	struct hf_session *s;
	struct ask *a;
	uint64_t now = boot_ms(), number;
	if (!options_ok(o))
		return HF_INVALID;
	s = mem_zalloc(sizeof(*s));
	s->client = client;
	s->on_state = o->on_state;
	s->arg = o->arg;
	list_init(&s->calls);
	list_init(&s->dirty_node);
	list_init(&s->probing_node);
	pthread_mutex_init(&s->mu, NULL);
	pthread_cond_init(&s->quiet, NULL);
	pthread_mutex_lock(&client->mu);
	number = ++client->sessions_made;
	pthread_mutex_unlock(&client->mu);
	/* Sessions begin at different replicas and renew at different times. No secret. */
	config.seed = number * 0x9e3779b97f4a7c15u ^ (uint64_t)(uintptr_t)s ^ now;
	config.open_tag = s->next_tag = 1;
	config.open_deadline_ms = deadline_of(now, timeout_ms);
	a = ask_new(s, ASK_OPEN, callback, arg);
	a->tag = 1;
	map64_put(&s->asks, 1, a);
	s->core = sess_new(&config, now);
	*ret_session = s;
	session_poke(s);
	return HF_OK;
}

enum hf_code hf_session_close_async(struct hf_session *s, uint32_t timeout_ms, hf_callback callback, void *arg)
{
	struct ask *a = ask_new(s, ASK_CLOSE, callback, arg);
	struct sess_ask what = { .kind = SESS_ASK_CLOSE };
	pthread_mutex_lock(&s->mu);
	what.deadline_ms = deadline_of(boot_ms(), timeout_ms);
	session_ask(s, a, &what);
	pthread_mutex_unlock(&s->mu);
	return HF_OK;
}

enum hf_state hf_session_state(struct hf_session *s)
{
	enum hf_state state;
	pthread_mutex_lock(&s->mu);
	state = sess_state(s->core);
	/* The client's thread may have been held up. */
	if (state == HF_SAFE && sess_remaining_ms(s->core, boot_ms()) == 0)
		state = HF_JEOPARDY;
	pthread_mutex_unlock(&s->mu);
	return state;
}

uint32_t hf_session_remaining_ms(struct hf_session *s)
{
	uint64_t ms;
	pthread_mutex_lock(&s->mu);
	ms = sess_remaining_ms(s->core, boot_ms());
	pthread_mutex_unlock(&s->mu);
	return ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

int64_t hf_session_id(struct hf_session *s)
{
	int64_t id;
	pthread_mutex_lock(&s->mu);
	id = sess_id(s->core);
	pthread_mutex_unlock(&s->mu);
	return id;
}
