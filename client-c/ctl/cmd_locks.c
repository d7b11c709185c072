/* cmd_locks.c: locks list, show, verify, break. */
#include <inttypes.h>
#include <stdio.h>

#include "ctl.h"
#include "holdfast/v1.pb-c.h"
#include "text.h"

typedef Holdfast__V1__LocksListResponse list_reply; /* the generated names are long */
typedef Holdfast__V1__LockPlace place;

static const char *mode_name(const place *p)
{
	return p->mode == V3LOCKPB__LOCK_MODE__SHARED ? "shared" : "exclusive";
}

static void print_place(struct ctl *c, struct slice name, const place *p)
{
	struct buf b = { .ptr = NULL };
	char id[24], when[32];
	text_print_lease(id, p->lease);
	text_print_time(when, p->since_unix_ms);
	out_bytes(&c->out, name, &b);
	buf_printf(&b, " %s %s token %" PRId64 " lease %s", p->held ? "held" : "waits", mode_name(p), p->fencing_token, id);
	if (*when)
		buf_printf(&b, " since %s", when);
	if (*p->client)
		buf_printf(&b, " from %s", p->client);
	buf_append_byte(&b, '\n');
	out_write(&b);
	buf_free(&b);
}

static void table_place(struct ctl *c, struct table *t, struct slice name, const place *p)
{
	char id[24], when[32];
	text_print_lease(id, p->lease);
	text_print_time(when, p->since_unix_ms);
	table_cell_bytes(&c->out, t, name);
	table_cell(t, "%s", p->held ? "held" : "waits");
	table_cell(t, "%s", mode_name(p));
	table_cell(t, "%" PRId64, p->fencing_token);
	table_cell(t, "%s", id);
	table_cell(t, "%s", when);
	table_cell(t, "%s", p->client);
}

static void table_begin(struct table *t)
{
	static const char *const names[] = { "name", "state", "mode", "token", "lease", "since", "client" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		table_cell(t, "%s", names[i]);
	table_head_done(t);
}

/* ---- lists, part by part ---- */

struct listing {
	struct ctl *c;
	struct buf prefix, after;
	bool only;      /* the lock with exactly that name, which comes first of those that begin with it */
	bool over;
	struct table table;
	/* Called with each part, which dies with the return. */
	void (*part)(struct listing *l, list_reply *r);
	/* of locks break */
	int64_t token; /* of the last hold that was seen */
	size_t held;
	struct buf tokens;
};

/* How many of the reply's locks are of interest. Of a listing of one lock that is the first one, or none; once another one has come, it is over. */
static size_t wanted(struct listing *l, const list_reply *r)
{
	size_t n = 0;
	if (!l->only)
		return r->n_locks;
	if (r->n_locks && slice_eq(slice_of(r->locks[0]->name.data, r->locks[0]->name.len), buf_view(&l->prefix)))
		n = 1;
	l->over = r->n_locks > n;
	return n;
}

static int ask_part(struct listing *l, struct answer *ret)
{
	Holdfast__V1__LocksListRequest r = HOLDFAST__V1__LOCKS_LIST_REQUEST__INIT;
	const struct ask a = { .method = METHOD_LOCKS_LIST, .request = &r.base, .again = ASK_AGAIN, .timeout_ms = l->c->args.timeout_ms,
			       .patient = args_given(&l->c->args, FLAG_TIMEOUT) };
	r.prefix = (ProtobufCBinaryData){ .data = l->prefix.ptr, .len = l->prefix.len };
	r.after = (ProtobufCBinaryData){ .data = l->after.ptr, .len = l->after.len };
	ask(l->c->link, &a, ret);
	return ret->kind == ANSWER_OK ? EXIT_DONE : ctl_failed(ret, "cannot list the locks");
}

static int list(struct listing *l)
{
	int code = EXIT_DONE;
	while (!l->over && !code) {
		struct answer answer;
		code = ask_part(l, &answer);
		if (!code) {
			list_reply *r = (list_reply *)answer.reply;
			size_t all = r->n_locks;
			r->n_locks = wanted(l, r);
			l->part(l, r);
			r->n_locks = all; /* for who frees it */
			buf_clear(&l->after);
			buf_append(&l->after, r->next.data, r->next.len);
			l->over |= r->next.len == 0;
		}
		answer_free(&answer);
	}
	return code;
}

static void listing_free(struct listing *l)
{
	buf_free(&l->prefix);
	buf_free(&l->after);
	buf_free(&l->tokens);
	table_free(&l->table);
}

static void print_part(struct listing *l, list_reply *r)
{
	if (l->c->out.format == OUTPUT_JSON || l->c->out.format == OUTPUT_FIELDS) {
		out_message(&l->c->out, &r->base);
		return;
	}
	for (size_t i = 0; i < r->n_locks; i++) {
		struct slice name = slice_of(r->locks[i]->name.data, r->locks[i]->name.len);
		for (size_t k = 0; k < r->locks[i]->n_places; k++) {
			if (l->c->out.format == OUTPUT_TABLE)
				table_place(l->c, &l->table, name, r->locks[i]->places[k]);
			else
				print_place(l->c, name, r->locks[i]->places[k]);
		}
	}
}

static int print_list(struct ctl *c, bool only)
{
	struct listing l = { .c = c, .only = only, .part = print_part };
	struct buf b = { .ptr = NULL };
	int code = EXIT_USAGE;
	table_begin(&l.table);
	if (!c->args.words_len || ctl_bytes(c, c->args.words[0], &l.prefix))
		code = list(&l);
	if (!code && c->out.format == OUTPUT_TABLE) {
		table_print(&l.table, &b);
		out_write(&b);
		buf_free(&b);
	}
	listing_free(&l);
	return code;
}

int command_locks_list(struct ctl *c)
{
	return print_list(c, false);
}

int command_locks_show(struct ctl *c)
{
	return print_list(c, true);
}

/* ---- one hold ---- */

static bool token_word(const char *word, int64_t *ret)
{
	struct errmsg em;
	if (text_i64(word, 1, INT64_MAX, ret, &em))
		return true;
	ctl_error("TOKEN: %s", em.text);
	return false;
}

int command_locks_verify(struct ctl *c)
{
	Holdfast__V1__LocksVerifyRequest r = HOLDFAST__V1__LOCKS_VERIFY_REQUEST__INIT;
	const struct ask a = { .method = METHOD_LOCKS_VERIFY, .request = &r.base, .again = ASK_AGAIN, .timeout_ms = c->args.timeout_ms,
			       .patient = args_given(&c->args, FLAG_TIMEOUT) };
	struct buf name = { .ptr = NULL };
	struct answer answer = { .reply = NULL };
	int code = EXIT_USAGE;
	if (!ctl_bytes(c, c->args.words[0], &name) || !token_word(c->args.words[1], &r.fencing_token))
		goto out;
	r.name = (ProtobufCBinaryData){ .data = name.ptr, .len = name.len };
	ask(c->link, &a, &answer);
	if (answer.kind != ANSWER_OK) {
		code = ctl_failed(&answer, "cannot verify lock '%s'", ctl_show(c, buf_view(&name)));
	} else {
		const Holdfast__V1__LocksVerifyResponse *reply = (const Holdfast__V1__LocksVerifyResponse *)answer.reply;
		bool told = out_message(&c->out, answer.reply);
		code = reply->current ? EXIT_DONE : EXIT_LOST;
		if (!reply->current)
			ctl_error("lock '%s' has no hold with token %s", ctl_show(c, buf_view(&name)), c->args.words[1]);
		else if (!told)
			out_printf("current\n");
	}
out:
	answer_free(&answer);
	buf_free(&name);
	return code;
}

static void count_holds(struct listing *l, list_reply *r)
{
	for (size_t i = 0; i < r->n_locks; i++) {
		for (size_t k = 0; k < r->locks[i]->n_places; k++) {
			const place *p = r->locks[i]->places[k];
			if (!p->held)
				continue;
			l->held++;
			l->token = p->fencing_token;
			if (l->held <= 16)
				buf_printf(&l->tokens, " %" PRId64, p->fencing_token);
		}
	}
	/* Holders come first: who waits is of no interest here. */
	l->over = true;
}

/* The token of the one hold there is. */
static int find_token(struct ctl *c, struct slice name, int64_t *ret)
{
	struct listing l = { .c = c, .only = true, .part = count_holds };
	int code;
	buf_append_slice(&l.prefix, name);
	code = list(&l);
	if (!code && l.held == 0) {
		ctl_error("nobody holds lock '%s'", ctl_show(c, name));
		code = EXIT_FAILED;
	} else if (!code && l.held > 1) {
		ctl_error("lock '%s' has %zu holds; say which TOKEN:%.*s", ctl_show(c, name), l.held, (int)l.tokens.len, (const char *)l.tokens.ptr);
		code = EXIT_USAGE;
	}
	*ret = l.token;
	listing_free(&l);
	return code;
}

static int break_hold(struct ctl *c, struct slice name, int64_t token)
{
	Holdfast__V1__LocksBreakRequest r = HOLDFAST__V1__LOCKS_BREAK_REQUEST__INIT;
	const struct ask a = { .method = METHOD_LOCKS_BREAK_HOLD, .request = &r.base, .again = ASK_ONCE, .timeout_ms = c->args.timeout_ms,
			       .patient = args_given(&c->args, FLAG_TIMEOUT) };
	const Holdfast__V1__LocksBreakResponse *reply;
	struct answer answer;
	char id[24];
	int code = EXIT_DONE;
	r.name = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)name.ptr, .len = name.len };
	r.fencing_token = token;
	ask(c->link, &a, &answer);
	reply = (const Holdfast__V1__LocksBreakResponse *)answer.reply;
	if (answer.kind != ANSWER_OK) {
		code = ctl_failed(&answer, "cannot break lock '%s'", ctl_show(c, name));
	} else if (!reply->broken) {
		ctl_error("lock '%s' has no hold with token %" PRId64, ctl_show(c, name), token);
		code = EXIT_FAILED;
	} else if (!out_message(&c->out, answer.reply)) {
		text_print_lease(id, reply->broken->lease);
		out_printf("broken: hold of lock '%s' token %" PRId64 " lease %s\n", ctl_show(c, name), reply->broken->fencing_token, id);
	}
	answer_free(&answer);
	return code;
}

int command_locks_break(struct ctl *c)
{
	struct buf name = { .ptr = NULL };
	int64_t token = 0;
	int code = EXIT_USAGE;
	if (ctl_bytes(c, c->args.words[0], &name)) {
		if (c->args.words_len > 1)
			code = token_word(c->args.words[1], &token) ? EXIT_DONE : EXIT_USAGE;
		else
			code = find_token(c, buf_view(&name), &token);
	}
	if (!code)
		code = break_hold(c, buf_view(&name), token);
	buf_free(&name);
	return code;
}
