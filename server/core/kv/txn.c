/* txn.c: transactions.
 *
 * Three passes over the request, in the same order each time:
 *   1. choose: every branch, of nested transactions too, by the state before the first operation;
 *   2. check: whatever could fail in the chosen branches, so that nothing is changed by a transaction that fails (V3 of kv.c);
 *   3. run: the operations in order, each seeing what those before it wrote; all writes share one revision.
 *
 *   (X1) the path is consumed by passes 2 and 3 exactly as pass 1 wrote it: one choice a transaction, before its operations.
 *   (X2) whether anything changes is known before the run, since the reply's header comes first in the reply.
 *   (X3) no lock gets two new contenders: they would share a create_revision, so neither would come first.
 *
 * A key may be put once and deleted besides (check.c says when); the check of a put therefore asks whether an earlier operation
 * of the path deletes the key. Of two faults the one that etcd 3.4 finds first is told: puts before ranges. */
#include "core/kv/kv.h"

#include "core/kv/kv_internal.h"

#define OP_RANGE ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE
#define OP_PUT ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT
#define OP_DELETE_RANGE ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE
#define OP_TXN ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_TXN

enum { TXN_SUCCEEDED = 2, TXN_RESPONSES = 3 };
enum { OP_RESPONSE_RANGE = 1, OP_RESPONSE_PUT = 2, OP_RESPONSE_DELETE_RANGE = 3, OP_RESPONSE_TXN = 4 };

struct txn_plan {
	struct kv_env *env;
	bool *path; /* X1 */
	size_t path_len, path_at;
	const Etcdserverpb__DeleteRangeRequest **deletes; /* of the path, so far */
	size_t deletes_len;
	struct slice *lock_names; /* of new contenders */
	size_t lock_names_len;
	bool changes; /* X2 */
};

struct txn_ops {
	Etcdserverpb__RequestOp **at;
	size_t len;
};

static struct txn_ops branch_of(const Etcdserverpb__TxnRequest *r, bool succeeded)
{
	if (succeeded)
		return (struct txn_ops){ .at = r->success, .len = r->n_success };
	return (struct txn_ops){ .at = r->failure, .len = r->n_failure };
}

/* ---- 1. choose ---- */

struct txn_compare {
	const Etcdserverpb__Compare *compare;
	bool any, holds;
};

static int64_t operand(const Etcdserverpb__Compare *c, Etcdserverpb__Compare__TargetUnionCase wanted, int64_t value)
{
	return c->target_union_case == wanted ? value : 0; /* another member of the oneof counts as left out */
}

static int compare_numbers(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

/* kv NULL: a key that is not there, all zero. */
static int compare_target(const Etcdserverpb__Compare *c, const struct kv *kv)
{
	struct slice value = { 0 };

	switch (c->target) {
	case ETCDSERVERPB__COMPARE__COMPARE_TARGET__VERSION:
		return compare_numbers(kv ? kv->version : 0, operand(c, ETCDSERVERPB__COMPARE__TARGET_UNION_VERSION, c->version));
	case ETCDSERVERPB__COMPARE__COMPARE_TARGET__CREATE:
		return compare_numbers(kv ? kv->create_revision : 0,
				       operand(c, ETCDSERVERPB__COMPARE__TARGET_UNION_CREATE_REVISION, c->create_revision));
	case ETCDSERVERPB__COMPARE__COMPARE_TARGET__MOD:
		return compare_numbers(kv ? kv->mod_revision : 0,
				       operand(c, ETCDSERVERPB__COMPARE__TARGET_UNION_MOD_REVISION, c->mod_revision));
	case ETCDSERVERPB__COMPARE__COMPARE_TARGET__LEASE:
		return compare_numbers(kv ? kv->lease : 0, operand(c, ETCDSERVERPB__COMPARE__TARGET_UNION_LEASE, c->lease));
	case ETCDSERVERPB__COMPARE__COMPARE_TARGET__VALUE:
		if (c->target_union_case == ETCDSERVERPB__COMPARE__TARGET_UNION_VALUE)
			value = kv_slice(c->value);
		return slice_cmp(kv ? kv_value(kv) : (struct slice){ 0 }, value);
	default:
		return 0; /* an unknown target is always equal, and an unknown result below always true: etcd's answers */
	}
}

static bool compare_one(const Etcdserverpb__Compare *c, const struct kv *kv)
{
	int result = compare_target(c, kv);

	switch (c->result) {
	case ETCDSERVERPB__COMPARE__COMPARE_RESULT__EQUAL:
		return result == 0;
	case ETCDSERVERPB__COMPARE__COMPARE_RESULT__NOT_EQUAL:
		return result != 0;
	case ETCDSERVERPB__COMPARE__COMPARE_RESULT__GREATER:
		return result > 0;
	case ETCDSERVERPB__COMPARE__COMPARE_RESULT__LESS:
		return result < 0;
	default:
		return true;
	}
}

static bool compare_next(void *ctx, const struct kv *kv)
{
	struct txn_compare *t = ctx;

	t->any = true;
	t->holds = compare_one(t->compare, kv);
	return t->holds;
}

/* Holds for every key of the range; when there is none, for a key of zeros, but never for a value. */
static bool compare_holds(const struct kv_env *env, const Etcdserverpb__Compare *c)
{
	struct store_range range = { .key = kv_slice(c->key), .end = kv_slice(c->range_end) };
	struct txn_compare t = { .compare = c };

	if (range.end.len == 0) {
		const struct kv *kv = store_get(env->store, range.key, 0);

		if (kv)
			compare_next(&t, kv);
	} else if (!kv_range_is_empty(range.key, range.end)) {
		store_walk(env->store, range, compare_next, &t);
	}
	if (t.any)
		return t.holds;
	return c->target != ETCDSERVERPB__COMPARE__COMPARE_TARGET__VALUE && compare_one(c, NULL);
}

static void choose(struct txn_plan *plan, const Etcdserverpb__TxnRequest *r)
{
	struct txn_ops ops;
	bool succeeded = true;

	for (size_t i = 0; i < r->n_compare && succeeded; i++)
		succeeded = compare_holds(plan->env, r->compare[i]);
	plan->path[plan->path_len++] = succeeded;
	ops = branch_of(r, succeeded);
	for (size_t i = 0; i < ops.len; i++) {
		if (ops.at[i]->request_case == OP_TXN)
			choose(plan, ops.at[i]->request_txn);
	}
}

/* ---- 2. check ---- */

static bool is_gone(const struct txn_plan *plan, struct slice key)
{
	for (size_t i = 0; i < plan->deletes_len; i++) {
		const Etcdserverpb__DeleteRangeRequest *r = plan->deletes[i];

		if (kv_range_covers(kv_slice(r->key), kv_slice(r->range_end), key))
			return true;
	}
	return false;
}

static enum err check_put(struct txn_plan *plan, const Etcdserverpb__PutRequest *r)
{
	struct kv_put_check check = { .request = r, .gone = is_gone(plan, kv_slice(r->key)) };
	enum err e = kv_put_check_key(plan->env, &check);

	if (!e)
		e = kv_put_check_lease(plan->env, r);
	if (e)
		return e;
	if (check.new_contender)
		plan->lock_names[plan->lock_names_len++] = check.lock_name;
	plan->changes = true;
	return ERR_OK;
}

static void note_delete(struct txn_plan *plan, const Etcdserverpb__DeleteRangeRequest *r)
{
	plan->deletes[plan->deletes_len++] = r;
	if (!plan->changes)
		plan->changes = kv_range_has_any(plan->env, kv_slice(r->key), kv_slice(r->range_end));
}

static enum err check_writes(struct txn_plan *plan, const Etcdserverpb__TxnRequest *r)
{
	struct txn_ops ops = branch_of(r, plan->path[plan->path_at++]);
	enum err e = ERR_OK;

	for (size_t i = 0; i < ops.len && !e; i++) {
		const Etcdserverpb__RequestOp *op = ops.at[i];

		if (op->request_case == OP_PUT)
			e = check_put(plan, op->request_put);
		else if (op->request_case == OP_DELETE_RANGE)
			note_delete(plan, op->request_delete_range);
		else if (op->request_case == OP_TXN)
			e = check_writes(plan, op->request_txn);
	}
	return e;
}

static enum err check_ranges(struct txn_plan *plan, const Etcdserverpb__TxnRequest *r)
{
	struct txn_ops ops = branch_of(r, plan->path[plan->path_at++]);
	enum err e = ERR_OK;

	for (size_t i = 0; i < ops.len && !e; i++) {
		const Etcdserverpb__RequestOp *op = ops.at[i];

		if (op->request_case == OP_RANGE)
			e = kv_range_check_in_txn(plan->env, op->request_range);
		else if (op->request_case == OP_TXN)
			e = check_ranges(plan, op->request_txn);
	}
	return e;
}

static int compare_slices(const void *a, const void *b)
{
	return slice_cmp(*(const struct slice *)a, *(const struct slice *)b);
}

static enum err check_contenders(struct txn_plan *plan)
{
	if (plan->lock_names_len < 2)
		return ERR_OK;
	qsort(plan->lock_names, plan->lock_names_len, sizeof(*plan->lock_names), compare_slices);
	for (size_t i = 1; i < plan->lock_names_len; i++) {
		if (slice_eq(plan->lock_names[i - 1], plan->lock_names[i]))
			return ERR_CONTENDER_TWICE;
	}
	return ERR_OK;
}

struct txn_size {
	size_t txns, puts, deletes; /* in all branches */
};

static void measure_ops(struct txn_ops ops, struct txn_size *size)
{
	for (size_t i = 0; i < ops.len; i++) {
		const Etcdserverpb__RequestOp *op = ops.at[i];

		size->puts += op->request_case == OP_PUT;
		size->deletes += op->request_case == OP_DELETE_RANGE;
		if (op->request_case != OP_TXN)
			continue;
		size->txns++;
		measure_ops(branch_of(op->request_txn, true), size);
		measure_ops(branch_of(op->request_txn, false), size);
	}
}

static enum err plan_txn(struct txn_plan *plan, const Etcdserverpb__TxnRequest *r)
{
	struct arena *arena = plan->env->arena;
	struct txn_size size = { .txns = 1 };
	enum err e;

	measure_ops(branch_of(r, true), &size);
	measure_ops(branch_of(r, false), &size);
	plan->path = arena_alloc(arena, size.txns * sizeof(*plan->path));
	plan->deletes = arena_alloc(arena, size.deletes * sizeof(*plan->deletes));
	plan->lock_names = arena_alloc(arena, size.puts * sizeof(*plan->lock_names));

	choose(plan, r);
	e = check_writes(plan, r);
	ASSERT_IF(!e, plan->path_at == plan->path_len);
	plan->path_at = 0;
	if (!e)
		e = check_ranges(plan, r);
	if (!e)
		e = check_contenders(plan);
	plan->path_at = 0;
	return e;
}

/* ---- 3. run ---- */

static void run_txn(struct txn_plan *plan, const struct kv_run *run, const Etcdserverpb__TxnRequest *r);

/* The response's message inside its ResponseOp. */
static void run_op(struct txn_plan *plan, const struct kv_run *run, const Etcdserverpb__RequestOp *op)
{
	static const uint32_t fields[] = {
		[OP_RANGE] = OP_RESPONSE_RANGE,
		[OP_PUT] = OP_RESPONSE_PUT,
		[OP_DELETE_RANGE] = OP_RESPONSE_DELETE_RANGE,
		[OP_TXN] = OP_RESPONSE_TXN,
	};
	size_t outer = 0, inner = 0;

	if (run->out) {
		outer = pbw_open(run->out, TXN_RESPONSES);
		inner = pbw_open(run->out, fields[op->request_case]);
	}
	if (op->request_case == OP_RANGE) {
		kv_run_range(run, op->request_range);
	} else if (op->request_case == OP_PUT) {
		kv_run_put(run, op->request_put);
	} else if (op->request_case == OP_DELETE_RANGE) {
		kv_run_delete_range(run, op->request_delete_range);
	} else {
		if (run->out) /* present and empty: etcd fills in none for a nested transaction */
			pbw_close(run->out, pbw_open(run->out, FIELD_HEADER));
		run_txn(plan, run, op->request_txn);
	}
	if (run->out) {
		pbw_close(run->out, inner);
		pbw_close(run->out, outer);
	}
}

static void run_txn(struct txn_plan *plan, const struct kv_run *run, const Etcdserverpb__TxnRequest *r)
{
	bool succeeded = plan->path[plan->path_at++];
	struct txn_ops ops = branch_of(r, succeeded);

	if (run->out)
		pbw_u64(run->out, TXN_SUCCEEDED, succeeded);
	for (size_t i = 0; i < ops.len; i++)
		run_op(plan, run, ops.at[i]);
}

static enum err txn_unpack(struct kv_env *env, struct slice request, Etcdserverpb__TxnRequest **ret)
{
	enum err e = kv_unpack(env, &etcdserverpb__txn_request__descriptor, request, ret);

	/* No bound on operations here: it is an option of the replica that took the request, see the top of kv.c. */
	return e ? e : kv_check_txn(*ret, UINT32_MAX);
}

enum err kv_txn(struct kv_env *env, struct slice request, struct buf *ret)
{
	struct kv_run run = { .env = env, .out = ret, .in_txn = true, .writing = true };
	struct txn_plan plan = { .env = env };
	Etcdserverpb__TxnRequest *r;
	enum err e = txn_unpack(env, request, &r);

	if (!e)
		e = plan_txn(&plan, r);
	if (e)
		return e;
	env->counts.txns++;
	store_txn_begin(env->store);
	if (ret)
		kv_write_header(env, env->state->revision + (plan.changes ? 1 : 0), ret, FIELD_HEADER);
	run_txn(&plan, &run, r);
	ASSERT(store_txn_end(env->store) == plan.changes);
	return ERR_OK;
}

enum err kv_txn_read(struct kv_env *env, struct slice request, struct buf *ret)
{
	struct kv_run run = { .env = env, .out = ret, .in_txn = true };
	struct txn_plan plan = { .env = env };
	Etcdserverpb__TxnRequest *r;
	bool serializable;
	enum err e = txn_unpack(env, request, &r);

	if (!e && !kv_txn_is_read_only(r, &serializable))
		e = ERR_MALFORMED;
	if (!e)
		e = plan_txn(&plan, r);
	if (e)
		return e;
	env->counts.txns++;
	if (ret)
		kv_write_header(env, env->state->revision, ret, FIELD_HEADER);
	run_txn(&plan, &run, r);
	return ERR_OK;
}
