/* check_history.c: the history of keys, and whether what callers are told fits it (P5, P8, P9).
 *
 * Every answer names a revision, and revisions are the order in which writes took effect. So linearizability can be checked as it happens,
 * for all keys together:
 *   - a call that the core gets after another was answered has no lower revision than that one was told (a write of its own: a higher one);
 *   - no revision is above what has been applied anywhere;
 *   - what is read at a revision is what the referee's history has there; what was written is there, under the revision told.
 * Values are numbers of calls, so that each can be seen to take effect at most once, and not at all when it was refused. */
#include "sim.h"

#include "base/hash.h"
#include "core/lease/lease.h"
#include "core/once/once.h"
#include "core/wire.h"

const struct version *history_at(const struct world *w, uint32_t key, revision rev)
{
	const struct key_history *h = &w->history[key];
	size_t lo = 0, hi = h->at.len;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (h->at.at[mid].mod <= rev)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo > 0 && h->at.at[lo - 1].version > 0 ? &h->at.at[lo - 1] : NULL;
}

/* ---- what took effect ---- */

static bool surely_without_effect(enum err e)
{
	switch (e) {
	case ERR_TOO_MANY_REQUESTS:
	case ERR_NO_LEADER:
	case ERR_NO_SPACE:
	case ERR_RECOVERING:
	case ERR_OVERLOADED:
	case ERR_LEASE_NOT_FOUND:
	case ERR_LOCK_HELD:
	case ERR_LOCK_ASKED_ELSEWHERE:
	case ERR_ELECTION_NOT_LEADER:
		return true;
	default: return false;
	}
}

/* A Campaign whose place was given up with its call may come to another place. */
static bool may_be_undone(const struct op *o)
{
	return o->session && o->kind == OP_CAMPAIGN;
}

static void took_effect(struct world *w, uint64_t number)
{
	struct op *o;
	enum err refused;

	CHECK(w, "P9", number > 0 && number <= w->ops.len, "a value that nobody wrote");
	o = op_get(w, number);
	CHECK(w, "P9", o->seen, "call %llu takes effect before any core has it", (unsigned long long)number);
	CHECK(w, "P9", ++o->applied == 1 || may_be_undone(o), "%s %llu of client %u takes effect twice", op_names[o->kind], (unsigned long long)number, o->client);
	refused = o->session ? (o->has_result ? o->result_err : ERR_OK) : o->answered ? o->err : ERR_OK;
	CHECK(w, "P9", !surely_without_effect(refused) || may_be_undone(o), "%s %llu of client %u takes effect, it was refused (%s)",
	      op_names[o->kind], (unsigned long long)number, o->client, err_name(refused));
}

void check_event(struct world *w, const struct kv *kv, const struct kv *prev)
{
	uint32_t k = key_number(kv_key(kv));
	uint64_t value = value_number(kv_value(kv));

	check_watch_note(w, kv);
	if (!kv_is_tombstone(kv) && value)
		took_effect(w, value);
	if (k < w->config.keys)
		*SIM_PUSH(&w->history[k].at) = (struct version){ .mod = kv->mod_revision, .create = kv->create_revision, .version = kv->version,
								 .lease = kv->lease, .value = value,
								 .value_hash = hash64(1, kv_value(kv).ptr, kv_value(kv).len) };
	if (k < w->config.keys)
		check_cached(w, k);
	else
		check_lock_event(w, kv, prev);
}

/* ---- answers ---- */

static bool same(const struct reply_kv *a, const struct version *v)
{
	return a->create == v->create && a->mod == v->mod && a->version == v->version && a->lease == v->lease &&
	       hash64(1, a->value.ptr, a->value.len) == v->value_hash;
}

static bool must_be_recent(const struct op *o)
{
	return o->kind != OP_GET_SERIALIZABLE && o->kind != OP_KEEP_ALIVE;
}

static void check_order(struct world *w, const struct op *o, const struct reply *rep, bool wrote)
{
	const char *what = op_names[o->kind];

	CHECK(w, "P5", !rep->bad, "the reply to %s cannot be read", what);
	CHECK(w, "P5", rep->header > 0, "the reply to %s names no revision", what);
	CHECK(w, "P5", rep->header <= referee_revision(w->referee), "%s of client %u: revision %lld was not there yet", what, o->client,
	      (long long)rep->header);
	if (!must_be_recent(o))
		return;
	CHECK(w, "P5", rep->header >= o->floor + (wrote ? 1 : 0),
	      "%s of client %u (key %u) is told revision %lld, another call was told %lld before this one came", what, o->client, o->key,
	      (long long)rep->header, (long long)o->floor);
	if (w->told < rep->header)
		w->told = rep->header;
}

static void check_read_keys(struct world *w, const struct op *o, const struct reply *rep, uint32_t from, uint32_t to, revision rev)
{
	size_t n = 0;

	for (uint32_t k = from; k < to && k < w->config.keys; k++) {
		const struct version *v = history_at(w, k, rev);

		if (!v)
			continue;
		CHECK(w, "P5", n < rep->kvs && key_number(rep->kv[n].key) == k && same(&rep->kv[n], v),
		      "%s of client %u at revision %lld: k%02u is not what it was (%lld)", op_names[o->kind], o->client, (long long)rev, k,
		      (long long)(n < rep->kvs ? rep->kv[n].mod : 0));
		n++;
	}
	CHECK(w, "P5", n == rep->kvs, "%s of client %u at revision %lld: %zu keys, there were %zu", op_names[o->kind], o->client, (long long)rev,
	      rep->kvs, n);
}

static void check_prev(struct world *w, const struct op *o, const struct reply *rep)
{
	const struct version *v = history_at(w, o->key, rep->header - 1);

	if (!o->prev_kv)
		return;
	CHECK(w, "P5", rep->has_prev == (v != NULL) && (!v || same(&rep->prev, v)), "%s of client %u at %lld: another value before it", op_names[o->kind],
	      o->client, (long long)rep->header);
}

static void check_written(struct world *w, const struct op *o, uint64_t number, revision rev)
{
	const struct version *v = history_at(w, o->key, rev);

	CHECK(w, "P8", v && v->mod == rev && v->value == number, "%s of client %u: not there at revision %lld", op_names[o->kind], o->client,
	      (long long)rev);
	CHECK(w, "P5", v->lease == o->lease, "%s of client %u: another lease", op_names[o->kind], o->client);
}

static void check_delete(struct world *w, const struct op *o, const struct reply *rep)
{
	const struct version *before = history_at(w, o->key, rep->header - 1);

	CHECK(w, "P8", !history_at(w, o->key, rep->header), "delete of client %u: k%02u is there at %lld", o->client, o->key, (long long)rep->header);
	if (rep->deleted)
		CHECK(w, "P5", before, "delete of client %u: there was nothing to delete", o->client);
	if (rep->deleted)
		check_prev(w, o, rep);
}

static void check_cas(struct world *w, const struct op *o, uint64_t number, const struct reply *rep)
{
	const struct version *v = history_at(w, o->key, rep->succeeded ? rep->header - 1 : rep->header);

	CHECK(w, "P5", ((v ? v->mod : 0) == o->expect) == rep->succeeded, "cas of client %u at %lld: %s, k%02u was at %lld and not %lld", o->client,
	      (long long)rep->header, rep->succeeded ? "done" : "not done", o->key, (long long)(v ? v->mod : 0), (long long)o->expect);
	if (!rep->succeeded) {
		check_read_keys(w, o, rep, o->key, o->key + 1u, rep->header);
		return;
	}
	check_written(w, o, number, rep->header);
	if (o->key2 != o->key)
		CHECK(w, "P5", !history_at(w, o->key2, rep->header), "cas of client %u: half of it is not there", o->client);
}

static void check_leader(struct world *w, const struct op *o, const struct reply *rep)
{
	const struct lock_history *l = &w->locks[o->key];
	bool known = false;

	for (size_t i = 0; i < l->holds.len; i++)
		known |= l->holds.at[i].token == rep->kv[0].create && l->holds.at[i].gone_at >= o->stepped_at;
	CHECK(w, "P5", rep->kvs == 1 && known, "lock%u: client %u is told of a leader that had ended", o->key, o->client);
}

static void check_ok(struct world *w, const struct op *o, uint64_t number, const struct reply *rep)
{
	switch ((enum op_kind)o->kind) {
	case OP_PUT:
		check_order(w, o, rep, true);
		check_written(w, o, number, rep->header);
		check_prev(w, o, rep);
		w->totals.writes++;
		break;
	case OP_DELETE:
		check_order(w, o, rep, rep->deleted > 0);
		check_delete(w, o, rep);
		w->totals.writes += rep->deleted > 0;
		break;
	case OP_CAS:
		check_order(w, o, rep, rep->succeeded);
		check_cas(w, o, number, rep);
		w->totals.writes += rep->succeeded;
		break;
	case OP_GET:
	case OP_GET_SERIALIZABLE:
		check_order(w, o, rep, false);
		check_read_keys(w, o, rep, o->key, o->key + 1u, rep->header);
		w->totals.reads++;
		break;
	case OP_RANGE:
		check_order(w, o, rep, false);
		check_read_keys(w, o, rep, o->key, o->key2, o->at > 0 ? o->at : rep->header);
		w->totals.reads++;
		break;
	case OP_COMPACT:
		check_order(w, o, rep, false);
		CHECK(w, "P8", referee_state(w->referee)->compact_revision >= o->at, "compaction to %lld is not there", (long long)o->at);
		break;
	case OP_JOIN:
	case OP_LEAVE: check_order(w, o, rep, rep->succeeded && (o->kind == OP_JOIN || o->token)); break;
	case OP_LEADER:
		check_order(w, o, rep, false);
		check_leader(w, o, rep);
		w->totals.reads++;
		break;
	default: check_order(w, o, rep, false); break;
	}
}

static void check_error(struct world *w, const struct op *o, enum err e)
{
	revision compacted = referee_state(w->referee)->compact_revision;

	if (e == ERR_COMPACTED)
		CHECK(w, "P5", o->at <= compacted, "%s of client %u at %lld: compacted is %lld", op_names[o->kind], o->client, (long long)o->at,
		      (long long)compacted);
	if (e == ERR_FUTURE_REVISION)
		CHECK(w, "P5", o->at > o->floor, "%s of client %u: revision %lld is in the future, another call was told %lld", op_names[o->kind], o->client,
		      (long long)o->at, (long long)o->floor);
	if (!o->session || (err_is_kept(e) && !may_be_undone(o)))
		CHECK(w, "P9", !surely_without_effect(e) || o->applied == 0, "%s of client %u is refused (%s), it has taken effect", op_names[o->kind],
	      o->client, err_name(e));
	w->totals.unknown += !surely_without_effect(e);
	CHECK(w, "answers", e != ERR_UNIMPLEMENTED && e != ERR_MALFORMED, "%s of client %u: %s", op_names[o->kind], o->client, err_name(e));
}

/* ---- the same request again ---- */

static uint64_t hash_of_result(enum err e, struct slice bytes, const struct reply *rep)
{
	uint64_t h = hash64_u64(hash64_u64(1, (uint64_t)e), (uint64_t)rep->header);
	struct wire w;

	for (wire_init(&w, bytes); wire_next(&w);)
		if (w.field != 1) /* the header says who tells it, and in which term */
			h = w.type == WIRE_BYTES ? hash64(h, w.bytes.ptr, w.bytes.len) : hash64_u64(h, w.value);
	return h;
}

/* Whoever is asked, and however often: of one request ID all are told the same. Of locks, what holds is told as it stands (check_lock). */
static void check_same(struct world *w, const struct op *o, struct op *root, enum err e, uint64_t hash)
{
	const struct client *c = &w->clients[o->client];

	CHECK(w, "P9", e != ERR_REQUEST_ID_REUSED && e != ERR_BAD_METADATA, "client %u: %s", o->client, err_name(e));
	/* Of a session that it has left it wants to know nothing any more, and how far that one's requests had come is not kept. The results of places that live
	 * are passed over (O2 of once.h), and leave room for so many fewer others. */
	CHECK(w, "P9", e != ERR_REQUEST_ID_TOO_OLD || o->closed || c->lease != o->session || c->requests + w->config.locks >= o->request_id + ONCE_RESULTS_MAX,
	      "client %u still wants to know of request %llu, its result is gone", o->client, (unsigned long long)o->request_id);
	if (e == ERR_UNKNOWN_SESSION)
		CHECK(w, "P9", !lease_find(referee_lessor(w->referee), o->session), "client %u is told that session %llx is unknown: it is not", o->client,
		      (unsigned long long)o->session);
	if (!err_is_kept(e) || o->kind == OP_LOCK || o->kind == OP_CAMPAIGN)
		return;
	if (e == ERR_RESULT_TOO_LARGE)
		return;
	CHECK(w, "P9", !root->has_result || root->result_hash == hash, "%s of client %u, request %llu: told %s, and %s before", op_names[o->kind],
	      o->client, (unsigned long long)o->request_id, e ? err_name(e) : "ok", root->result_err ? err_name(root->result_err) : "ok");
	root->has_result = true;
	root->result_err = e;
	root->result_hash = hash;
}

void check_answer(struct world *w, struct replica *r, uint64_t number, enum err e, struct slice bytes)
{
	static struct reply rep; /* large */
	struct op *o = op_get(w, number), *root = op_root(w, number);
	uint64_t value = o->root ? o->root : number; /* what it writes */

	CHECK(w, "answers", o->stepped && !o->answered && o->replica == r->id && o->generation == r->generation,
	      "%s: call %llu is answered, nobody waits for it here", r->name, (unsigned long long)number);
	o->answered = true;
	o->answered_at = w->now;
	o->err = e;
	if (e)
		bytes = (struct slice){ 0 };
	parse_reply(o, bytes, &rep);
	if (o->kind == OP_CAMPAIGN || o->kind == OP_LOCK)
		rep.ttl = 0;
	TRACE(w, "%s answers client %u's %s %llu: %s, revision %lld%s", r->name, o->client, op_names[o->kind], (unsigned long long)number,
	      e ? err_name(e) : "ok", (long long)rep.header, rep.token ? ", token" : "");
	o->rev = rep.header;
	if (!e)
		check_ok(w, o, value, &rep);
	else
		check_error(w, root, e);
	if (o->session)
		check_same(w, o, root, e, hash_of_result(e, bytes, &rep));
	check_lock_answer(w, o, e, &rep);
	check_lease_answer(w, o, e, &rep);
}
