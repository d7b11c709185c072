/* once.c: the table of results, and the one question to it that does not come with an ID: which Locks asked for a contender.
 *
 * Results lie under (session, request) and so side by side for one session, oldest first. Derived beside them, and in no view: `places`, the
 * results that name a contender, under (token, session, request). More than one may name it, as a session may ask twice. */
#include "internal.h"

#include <endian.h>

#include "base/mem.h"

enum { TOKEN_BYTES = 8, RESULT_KEY_BYTES = 16 };

struct place {
	struct tree_record base;
	uint8_t key[TOKEN_BYTES + RESULT_KEY_BYTES];
};

struct once {
	struct state *state;
	struct tree places;
	uint64_t bytes; /* of all results, about */
};

/* ---- places ---- */

static struct slice place_key(const struct tree_record *r)
{
	return slice_of(((const struct place *)(const void *)r)->key, sizeof(((const struct place *)(const void *)r)->key));
}

static struct tree_record *place_clone(const struct tree_record *r)
{
	struct place *copy = mem_alloc(sizeof(*copy));

	memcpy(copy, r, sizeof(*copy));
	copy->base.refs = 1;
	return &copy->base;
}

static void place_free(struct tree_record *r)
{
	free(r);
}

static uint64_t place_hash(const struct tree_record *r)
{
	(void)r;
	return 0; /* derived, and so no part of any state's hash */
}

static const struct tree_type place_type = { .key = place_key, .clone = place_clone, .free = place_free, .hash = place_hash };

static void place_write_key(const struct result_record *r, uint8_t key[TOKEN_BYTES + RESULT_KEY_BYTES])
{
	uint64_t be = htobe64((uint64_t)r->token);

	memcpy(key, &be, TOKEN_BYTES);
	memcpy(key + TOKEN_BYTES, r->key, RESULT_KEY_BYTES);
}

/* ---- results ---- */

static size_t size_of(const struct result_record *r)
{
	return sizeof(*r) + r->reply_len + r->details_len + r->calls_len * sizeof(struct call_id) + (r->token ? sizeof(struct place) : 0) +
	       32; /* their share of nodes */
}

static void note(struct once *o, const struct result_record *r)
{
	struct place *p;

	o->bytes += size_of(r);
	if (r->token == 0)
		return;
	p = mem_alloc(sizeof(*p));
	p->base.refs = 1;
	place_write_key(r, p->key);
	tree_put_take(&o->places, &p->base);
}

static void forget(struct once *o, const struct result_record *r)
{
	uint8_t key[TOKEN_BYTES + RESULT_KEY_BYTES];
	uint8_t own[RESULT_KEY_BYTES];

	o->bytes -= size_of(r);
	place_write_key(r, key);
	memcpy(own, r->key, sizeof(own)); /* the record goes with its tree's reference */
	if (r->token)
		ASSERT(tree_remove(&o->places, slice_of(key, sizeof(key))));
	ASSERT(tree_remove(&o->state->results, slice_of(own, sizeof(own))));
}

static const struct result_record *first_of(const struct once *o, lease_id session)
{
	uint64_t be = htobe64((uint64_t)session);
	struct tree_cursor cursor;
	const struct tree_record *r = tree_seek(&cursor, &o->state->results, slice_of(&be, sizeof(be)));

	return r && result_of(r)->session == session ? result_of(r) : NULL;
}

static uint64_t count_of(const struct once *o, lease_id session)
{
	uint8_t end[RESULT_KEY_BYTES + 1];
	uint64_t be = htobe64((uint64_t)session);

	memset(end, 0xff, sizeof(end));
	memcpy(end, &be, sizeof(be));
	return tree_count(&o->state->results, slice_of(&be, sizeof(be)), slice_of(end, sizeof(end)), true);
}

/* ---- sessions ---- */

static uint64_t window_of(const struct once *o, lease_id session, bool *ret_known)
{
	uint64_t be = htobe64((uint64_t)session);
	const struct tree_record *r = tree_get(&o->state->sessions, slice_of(&be, sizeof(be)));

	*ret_known = r != NULL;
	return r ? session_of(r)->window : 0;
}

/* Returns where it is then. */
static uint64_t raise_window(struct once *o, lease_id session, uint64_t to)
{
	bool known;
	uint64_t from = window_of(o, session, &known);

	if (to > from || !known) {
		o->bytes += known ? 0 : sizeof(struct session_record);
		tree_put_take(&o->state->sessions, &session_new(session, to)->base);
	}
	return to > from ? to : from;
}

/* O2: the caller wants nothing below any more. */
static uint64_t move_window(struct once *o, lease_id session, uint64_t to)
{
	const struct result_record *first;
	uint64_t window = raise_window(o, session, to);

	while ((first = first_of(o, session)) && first->request < to)
		forget(o, first);
	return window;
}

void once_end_session(struct once *o, lease_id session)
{
	uint64_t be = htobe64((uint64_t)session);
	const struct result_record *first;

	if (!tree_remove(&o->state->sessions, slice_of(&be, sizeof(be))))
		return;
	o->bytes -= sizeof(struct session_record);
	while ((first = first_of(o, session)))
		forget(o, first);
}

/* ---- requests ---- */

const struct result_record *once_find(const struct once *o, lease_id session, uint64_t request)
{
	uint64_t be[2] = { htobe64((uint64_t)session), htobe64(request) };
	const struct tree_record *r = tree_get(&o->state->results, slice_of(be, sizeof(be)));

	return r ? result_of(r) : NULL;
}

bool once_is_undone(const struct once *o, lease_id session, uint64_t request)
{
	bool known;
	uint64_t window = window_of(o, session, &known);

	return known && request >= window && !once_find(o, session, request);
}

enum err once_begin(struct once *o, const struct once_id *id, uint32_t kind, const struct result_record **ret)
{
	const struct result_record *r;
	uint64_t window;

	if (id->session == 0 || id->request == 0 || id->request > ONCE_REQUEST_MAX || id->first_unanswered > id->request)
		return ERR_BAD_METADATA;
	window = move_window(o, id->session, id->first_unanswered);
	r = once_find(o, id->session, id->request);
	if (!r && id->request < window)
		return ERR_REQUEST_ID_TOO_OLD;
	if (r && r->kind != kind)
		return ERR_REQUEST_ID_REUSED;
	*ret = r;
	return ERR_OK;
}

/* O2: one goes, the oldest if it can be, and never the newcomer. */
static void make_room(struct once *o, const struct result_record *newcomer, once_lives_fn lives, void *ctx)
{
	const struct result_record *oldest = NULL;
	struct tree_cursor cursor;
	uint64_t be = htobe64((uint64_t)newcomer->session);
	lease_id session = newcomer->session;
	uint64_t request;

	for (const struct tree_record *t = tree_seek(&cursor, &o->state->results, slice_of(&be, sizeof(be))); t; t = tree_next(&cursor)) {
		const struct result_record *r = result_of(t);

		if (r->session != session)
			break;
		if (r == newcomer)
			continue;
		if (r->token && lives(ctx, r)) {
			oldest = oldest ? oldest : r;
			continue;
		}
		oldest = r;
		break;
	}
	ASSERT(oldest);
	request = oldest->request;
	forget(o, oldest);
	(void)raise_window(o, session, request + 1);
}

void once_keep(struct once *o, const struct once_id *id, const struct once_outcome *outcome, once_lives_fn lives, void *ctx)
{
	struct result_record *r = result_new(id->session, id->request, outcome);
	uint64_t before = o->state->results.len;

	note(o, r);
	tree_put_take(&o->state->results, &r->base);
	ASSERT(o->state->results.len == before + 1); /* O1 */
	if (before >= ONCE_RESULTS_MAX && count_of(o, id->session) > ONCE_RESULTS_MAX)
		make_room(o, r, lives, ctx);
}

/* ---- places that come to an end ---- */

/* Along the results that name a place. What was returned last may be changed or forgotten. */
struct walk {
	lease_id lease;
	uint8_t key[TOKEN_BYTES + RESULT_KEY_BYTES + 1]; /* where to go on */
	size_t len;
};

static void walk_init(struct walk *w, revision token, lease_id lease)
{
	uint64_t be = htobe64((uint64_t)token);

	*w = (struct walk){ .lease = lease, .len = TOKEN_BYTES };
	memcpy(w->key, &be, sizeof(be));
}

/* A transaction may create several contenders at one revision, of different leases. */
static const struct result_record *walk_next(const struct once *o, struct walk *w)
{
	struct tree_cursor cursor;
	const struct tree_record *p;

	while ((p = tree_seek(&cursor, &o->places, slice_of(w->key, w->len)))) {
		struct slice key = place_key(p);
		const struct tree_record *r;

		if (memcmp(key.ptr, w->key, TOKEN_BYTES) != 0)
			return NULL;
		memcpy(w->key, key.ptr, key.len);
		w->key[key.len] = 0; /* what follows it */
		w->len = key.len + 1;
		r = tree_get(&o->state->results, slice_of(key.ptr + TOKEN_BYTES, RESULT_KEY_BYTES));
		ASSERT(r);
		if (result_of(r)->lease == w->lease)
			return result_of(r);
	}
	return NULL;
}

static void replace(struct once *o, const struct result_record *r, const struct once_outcome *outcome)
{
	struct result_record *now = result_new(r->session, r->request, outcome);

	forget(o, r);
	note(o, now);
	tree_put_take(&o->state->results, &now->base);
}

static void set_calls(struct once *o, const struct result_record *r, const struct call_id *calls, size_t n)
{
	if (r->too_large) /* whoever sends it again is told so, whoever asks */
		return;
	replace(o, r, &(struct once_outcome){
		.kind = r->kind,
		.reply = result_reply(r),
		.token = r->token,
		.lease = r->lease,
		.calls = calls,
		.calls_len = n,
	});
}

/* One call less: without the nth. */
static size_t without(struct call_id *calls, size_t n, size_t i)
{
	memmove(&calls[i], &calls[i + 1], (n - i - 1) * sizeof(*calls));
	return n - 1;
}

static size_t find_call(const struct call_id *calls, size_t n, struct call_id call)
{
	size_t i = 0;

	while (i < n && !call_id_eq(calls[i], call))
		i++;
	return i;
}

/* Of the same replica, as with those who ask for a contender (lock_ask_beside), so that these stay among them. */
static size_t oldest_like(const struct call_id *calls, size_t n, struct call_id call)
{
	for (size_t i = 0; i < n; i++)
		if (calls[i].member == call.member)
			return i;
	return 0;
}

void once_ask(struct once *o, const struct result_record *r, struct call_id call, bool alone)
{
	struct call_id calls[ONCE_CALLS_MAX];
	size_t n = alone ? 0 : result_calls(r, calls);

	ASSERT(r->token);
	if (find_call(calls, n, call) < n)
		return;
	if (n == ONCE_CALLS_MAX)
		n = without(calls, n, oldest_like(calls, n, call));
	calls[n++] = call;
	set_calls(o, r, calls, n);
}

static void call_ended(struct once *o, const struct result_record *r, const struct once_end *end)
{
	struct call_id calls[ONCE_CALLS_MAX];
	size_t n = result_calls(r, calls), i = find_call(calls, n, end->call);
	bool its_own = i < n;

	if (its_own)
		n = without(calls, n, i);
	if (its_own && end->bound_is_over && (n == 0 || end->place_goes))
		replace(o, r, &(struct once_outcome){ .kind = r->kind, .err = ERR_LOCK_WAIT_TIMEOUT });
	else if (end->place_goes && (its_own || n == 0))
		forget(o, r);
	else if (its_own)
		set_calls(o, r, calls, n);
}

void once_call_ended(struct once *o, revision token, lease_id lease, const struct once_end *end)
{
	const struct result_record *r;
	struct walk w;

	walk_init(&w, token, lease);
	while ((r = walk_next(o, &w)))
		call_ended(o, r, end);
}

void once_undo_place(struct once *o, revision token, lease_id lease)
{
	const struct result_record *r;
	struct walk w;

	walk_init(&w, token, lease);
	while ((r = walk_next(o, &w)))
		forget(o, r);
}

/* ---- life ---- */

void once_rebuild(struct once *o)
{
	struct tree_cursor cursor;

	tree_deinit(&o->places);
	tree_init(&o->places, &place_type);
	o->bytes = o->state->sessions.len * sizeof(struct session_record);
	for (const struct tree_record *r = tree_first(&cursor, &o->state->results); r; r = tree_next(&cursor))
		note(o, result_of(r));
}

struct once *once_new(struct state *st)
{
	struct once *o = mem_zalloc(sizeof(*o));

	o->state = st;
	tree_init(&o->places, &place_type);
	once_rebuild(o);
	return o;
}

void once_free(struct once *o)
{
	if (!o)
		return;
	tree_deinit(&o->places);
	free(o);
}

uint64_t once_bytes(const struct once *o)
{
	return o->bytes;
}

void once_check(const struct once *o)
{
	uint64_t bytes = o->state->sessions.len * sizeof(struct session_record), places = 0, n = 0;
	lease_id session = 0;
	struct tree_cursor cursor;

	for (const struct tree_record *t = tree_first(&cursor, &o->state->results); t; t = tree_next(&cursor)) {
		const struct result_record *r = result_of(t);
		bool known;

		n = r->session == session ? n + 1 : 1;
		session = r->session;
		ASSERT(n <= ONCE_RESULTS_MAX);
		(void)window_of(o, r->session, &known);
		ASSERT(known);
		bytes += size_of(r);
		places += r->token != 0;
	}
	ASSERT(bytes == o->bytes);
	ASSERT(places == o->places.len);
	for (const struct tree_record *t = tree_first(&cursor, &o->state->sessions); t; t = tree_next(&cursor))
		ASSERT(tree_get(&o->state->leases, session_record_type.key(t))); /* O3 */
}
