/* session_stories.c: stories of sessions and their caches, as text: session_stories [--rewrite] FILE...
 *
 * A story is blocks of commands, a line `----`, what came of them, and an empty line. Lines that begin with # are for the reader. Replicas are
 * called as of the last `elect`: leader, first, second. Sessions are called as they were opened.
 *
 *   cell N [CHECKED] (after so many batches: large ones take their time) | elect | run MS | crash WHO | restart WHO | cut WHO | join WHO | stall WHO (its disk) | flow WHO
 *   open WHO NAME TTL [PREFIX...] | resume WHO NAME [wrong] [attempt=N] | close NAME | drop NAME (its stream)
 *   alive NAME | ack NAME [NUMBER]       a keep-alive; all that it was told to forget, or all up to that number
 *   get NAME PATH [cache] [watch=N] | list NAME PATH [cache] [watch=N] | unwatch NAME N
 *   read WHO PATH | ls WHO PATH          without a session
 *   write LABEL WHO set PATH VALUE [version=N] | create PATH VALUE [sequence] [of=NAME] | delete PATH [version=N]
 *               | put KEY VALUE | del KEY [END] | txn KEY VALUE (in a nested transaction's other branch) | lock NAME LEASE
 *               | claim NAME of=NAME (Lock) | lead NAME VALUE of=NAME (Campaign): with the session's stream, or not at all;
 *                                        each may have [id=N] behind of=NAME: its request ID
 *                                        asked; told whenever it is answered
 *   grant WHO LEASE TTL | revoke WHO NAME
 *   as NAME | as nobody                  who asks and opens from now on
 *   auth ACT...                          of the leader; ACT is one of:
 *               user NAME | role NAME | give USER ROLE | enable | disable | drop USER | unrole USER ROLE | delete ROLE
 *               | permit ROLE read|write|readwrite KEY [END] | forbid ROLE KEY [END]
 *   write LABEL WHO auth ACT...          the same, not waited for
 *   cancel WHO LABEL                     gives it up
 *   waits LABEL... | stats               whether they do; what the leader has noted
 *   flood N set WHO PATH BYTES           so many writes of it at once, each of so many bytes
 *   flood N watch NAME PATH              so many watches of it, numbered from 1
 *   tally                                what became of the last flood so far */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/pbw.h"
#include "core/session/session.h"
#include "core/wire.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3election.pb-c.h"
#include "etcd/v3lock.pb-c.h"
#include "holdfast/v1.pb-c.h"
#include "support/mini_cell.h"

enum { NAMES_MAX = 32, WORDS_MAX = 12, NAMED = 3, PATIENCE_MS = 20000 };

struct held { /* a session */
	char name[16];
	size_t at;
	uint64_t stream;
	bool over, taken; /* taken: its output was, and it may be told so */
	lease_id id;
	uint8_t secret[32];
	uint64_t sequence, owed, term;
};

struct label {
	char name[16];
	uint64_t tag;
	time_ms asked;
	bool told;
};

struct story {
	struct mini_cell *m;
	size_t replicas, named[NAMED];
	struct held sessions[NAMES_MAX];
	size_t sessions_len;
	struct label labels[NAMES_MAX];
	size_t labels_len;
	uint64_t flood; /* the last one's first request */
	size_t flood_len;
	uint64_t streams;
	struct buf out;
};

static size_t replica(const struct story *s, const char *who)
{
	static const char *const names[NAMED] = { "leader", "first", "second" };

	for (size_t i = 0; i < NAMED; i++)
		if (who && strcmp(who, names[i]) == 0 && s->named[i] < s->replicas)
			return s->named[i];
	fprintf(stderr, "no such replica: %s\n", who ? who : "(none)");
	exit(2);
}

static struct held *session(struct story *s, const char *name)
{
	for (size_t i = 0; i < s->sessions_len; i++)
		if (name && strcmp(s->sessions[i].name, name) == 0)
			return &s->sessions[i];
	fprintf(stderr, "no such session: %s\n", name ? name : "(none)");
	exit(2);
}

static void elect(struct story *s)
{
	size_t n = 1;

	for (size_t i = 0; i < NAMED; i++)
		s->named[i] = s->replicas;
	s->named[0] = mini_elect(s->m, PATIENCE_MS);
	for (size_t i = 0; i < s->replicas && n < NAMED; i++)
		if (i != s->named[0])
			s->named[n++] = i;
	mini_run(s->m, 300);
}

static int64_t number(const char *word)
{
	return word ? strtoll(word, NULL, 10) : 0;
}

/* ---- what streams tell ---- */

static void tell_invalidation(struct story *s, struct held *h, struct slice body)
{
	struct wire w;
	bool any = false;

	h->owed = wire_find_u64(body, 1, 0);
	h->term = wire_find_u64(body, 2, 0);
	buf_printf(&s->out, "%s: forget, number %llu of term %llu:", h->name, (unsigned long long)h->owed, (unsigned long long)h->term);
	if (wire_find_u64(body, 3, 0))
		buf_printf(&s->out, " everything");
	for (wire_init(&w, body); wire_next(&w);) {
		struct slice item = w.field == 4 ? wire_bytes(&w) : (struct slice){ 0 }, path = wire_find_bytes(item, 1);

		if (w.field == 4)
			buf_printf(&s->out, "%s %s%.*s", any ? "," : "", wire_find_u64(item, 2, 0) ? "list of " : "", (int)path.len, (const char *)path.ptr);
		any |= w.field == 4;
	}
	buf_printf(&s->out, "\n");
}

static void tell_message(struct story *s, struct held *h, uint32_t kind, struct slice body)
{
	static const char *const ends[] = { "expired", "closed", "revoked", "taken over" };
	static const char *const changes[] = { "changed", "deleted", "children changed", "denied" };
	struct slice path = wire_find_bytes(body, 2);

	switch (kind) {
	case 1:
		h->id = (lease_id)wire_find_u64(body, 1, 0);
		if (path.len == sizeof h->secret)
			memcpy(h->secret, path.ptr, sizeof h->secret);
		buf_printf(&s->out, "%s: %s, ttl %llu, term %llu, revision %llu\n", h->name, wire_find_u64(body, 6, 0) ? "resumed" : "opened",
			   (unsigned long long)wire_find_u64(body, 3, 0), (unsigned long long)wire_find_u64(body, 4, 0),
			   (unsigned long long)wire_find_u64(body, 5, 0));
		break;
	case 2:
		buf_printf(&s->out, "%s: kept alive, ttl %llu, term %llu%s\n", h->name, (unsigned long long)wire_find_u64(body, 2, 0),
			   (unsigned long long)wire_find_u64(body, 3, 0), wire_find_u64(body, 5, 0) ? ", may cache as long" : "");
		break;
	case 3: tell_invalidation(s, h, body); break;
	case 4:
		buf_printf(&s->out, "%s: watch %llu: %.*s %s at revision %llu\n", h->name, (unsigned long long)wire_find_u64(body, 1, 0), (int)path.len,
			   (const char *)path.ptr, changes[wire_find_u64(body, 3, 0)], (unsigned long long)wire_find_u64(body, 4, 0));
		break;
	case 5: buf_printf(&s->out, "%s: another leader, term %llu\n", h->name, (unsigned long long)wire_find_u64(body, 1, 0)); break;
	case 6:
		buf_printf(&s->out, "%s: %s, revision %llu\n", h->name, ends[wire_find_u64(body, 1, 0)], (unsigned long long)wire_find_u64(body, 3, 0));
		break;
	default: buf_printf(&s->out, "%s: a message of kind %u\n", h->name, kind); break;
	}
}

static void tell_messages(struct story *s, struct held *h, struct slice left)
{
	while (left.len >= 4) {
		uint32_t len = (uint32_t)left.ptr[0] | (uint32_t)left.ptr[1] << 8 | (uint32_t)left.ptr[2] << 16 | (uint32_t)left.ptr[3] << 24;
		struct wire w;

		wire_init(&w, slice_of(left.ptr + 4, len));
		ASSERT(wire_next(&w));
		tell_message(s, h, w.field, wire_bytes(&w));
		left = slice_of(left.ptr + 4 + len, left.len - 4 - len);
	}
}

/* Within the core's update: what it leads to is for later. */
static void on_output(void *ctx, size_t i, struct core_output *o)
{
	struct story *s = ctx;

	(void)i;
	for (size_t n = 0; n < s->sessions_len; n++) {
		struct held *h = &s->sessions[n];

		if (h->stream != o->stream || h->over)
			continue;
		tell_messages(s, h, buf_view(&o->messages));
		h->over = o->finished;
		if (o->finished && o->err)
			buf_printf(&s->out, "%s: the stream ends: %s\n", h->name, err_name(o->err));
		else if (!o->finished)
			h->taken = true;
	}
}

static void run(struct story *s, time_ms ms)
{
	enum { STEP_MS = 5 };

	for (time_ms done = 0; done < ms; done += STEP_MS) {
		mini_run(s->m, STEP_MS);
		for (size_t n = 0; n < s->sessions_len; n++) {
			struct held *h = &s->sessions[n];

			if (!h->taken)
				continue;
			h->taken = false;
			if (!h->over && mini_core(s->m, h->at))
				mini_stream(s->m, h->at, EVENT_STREAM_WRITABLE, h->stream, METHOD_SESSION_CONNECT, (struct slice){ 0 });
		}
	}
}

static const char *option(char **w, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strncmp(w[i], name, strlen(name)) == 0)
			return w[i] + strlen(name);
	return NULL;
}

/* ---- streams ---- */

static void send(struct story *s, struct held *h, uint32_t kind, struct buf *body)
{
	struct buf b = { 0 };

	pbw_bytes_always(&b, kind, buf_view(body));
	mini_stream(s->m, h->at, EVENT_STREAM_MESSAGE, h->stream, METHOD_SESSION_CONNECT, buf_view(&b));
	buf_free(&b);
	buf_free(body);
}

static void connect(struct story *s, struct held *h, size_t at)
{
	uint8_t secret[SESSION_SECRET_LEN];

	h->stream = ++s->streams;
	h->at = at;
	h->over = false;
	memset(secret, (int)h->stream, sizeof secret);
	mini_stream(s->m, at, EVENT_STREAM_OPEN, h->stream, METHOD_SESSION_CONNECT, slice_of(secret, sizeof secret));
}

static void open_session(struct story *s, char **w, size_t n)
{
	struct held *h = &s->sessions[s->sessions_len++];
	struct buf b = { 0 };

	ASSERT(s->sessions_len <= NAMES_MAX && n >= 4);
	memset(h, 0, sizeof *h);
	snprintf(h->name, sizeof h->name, "%s", w[2]);
	connect(s, h, replica(s, w[1]));
	pbw_i64(&b, 1, number(w[3]));
	for (size_t i = 4; i < n; i++)
		pbw_bytes_always(&b, 2, slice_of_str(w[i]));
	send(s, h, 1, &b);
}

/* The session goes on under its name; the old stream is told under it too, with a prime. */
static void resume(struct story *s, char **w, size_t n)
{
	struct held *old = session(s, w[2]), *h = &s->sessions[s->sessions_len++];
	struct buf b = { 0 };

	*h = *old;
	*old = *h;
	snprintf(h->name, sizeof h->name, "%.14s'", old->name);
	h = old;
	s->sessions[s->sessions_len - 1].stream = old->stream;
	connect(s, h, replica(s, w[1]));
	pbw_i64(&b, 1, h->id);
	if (n > 3 && strcmp(w[3], "wrong") == 0)
		pbw_bytes(&b, 2, slice_of_str(w[3]));
	else
		pbw_bytes(&b, 2, slice_of(h->secret, sizeof h->secret));
	pbw_i64(&b, 4, number(option(w, n, "attempt=")));
	send(s, h, 2, &b);
}

static bool stream_command(struct story *s, char **w, size_t n)
{
	struct buf b = { 0 };
	struct held *h;

	if (strcmp(w[0], "open") == 0) {
		open_session(s, w, n);
		return true;
	}
	if (strcmp(w[0], "resume") == 0) {
		resume(s, w, n);
		return true;
	}
	if (strcmp(w[0], "alive") == 0) {
		h = session(s, w[1]);
		pbw_u64(&b, 1, ++h->sequence);
		send(s, h, 3, &b);
	} else if (strcmp(w[0], "ack") == 0) {
		h = session(s, w[1]);
		pbw_u64(&b, 1, n > 2 ? (uint64_t)number(w[2]) : h->owed);
		pbw_u64(&b, 2, h->term);
		send(s, h, 4, &b);
	} else if (strcmp(w[0], "close") == 0) {
		send(s, session(s, w[1]), 5, &b);
	} else if (strcmp(w[0], "unwatch") == 0) {
		pbw_u64(&b, 1, (uint64_t)number(w[2]));
		send(s, session(s, w[1]), 6, &b);
	} else if (strcmp(w[0], "drop") == 0) {
		h = session(s, w[1]);
		h->over = true;
		mini_stream(s->m, h->at, EVENT_STREAM_CLOSED, h->stream, METHOD_SESSION_CONNECT, (struct slice){ 0 });
	} else {
		return false;
	}
	return true;
}

/* ---- reads ---- */

static void tell_node(struct story *s, struct slice node)
{
	struct slice path = wire_find_bytes(node, 1), value = wire_find_bytes(node, 2);

	buf_printf(&s->out, " %.*s", (int)path.len, (const char *)path.ptr);
	if (value.len)
		buf_printf(&s->out, " = %.*s", (int)value.len, (const char *)value.ptr);
	buf_printf(&s->out, " (version %llu%s)", (unsigned long long)wire_find_u64(node, 3, 0), wire_find_u64(node, 6, 0) ? ", ephemeral" : "");
}

static void tell_read(struct story *s, uint64_t tag, bool list, bool cache)
{
	const struct mini_answer *a = mini_wait(s->m, tag, PATIENCE_MS);
	raft_term grant;
	struct wire w;
	bool any = false;

	if (!a || a->err) {
		buf_printf(&s->out, "%s\n", a ? err_name(a->err) : "no answer");
		return;
	}
	grant = wire_find_u64(wire_find_bytes(buf_view(&a->reply), list ? 4 : 3), 1, 0);
	buf_printf(&s->out, "is:");
	for (wire_init(&w, buf_view(&a->reply)); wire_next(&w);) {
		if (w.field != 2)
			continue;
		tell_node(s, wire_bytes(&w));
		any = true;
	}
	buf_printf(&s->out, "%s", any ? "" : " nothing");
	if (grant)
		buf_printf(&s->out, "; may be cached, term %llu", (unsigned long long)grant);
	else if (cache)
		buf_printf(&s->out, "; not to be cached");
	buf_printf(&s->out, "\n");
}

static void read(struct story *s, char **w, size_t n, bool list, struct held *h, size_t at)
{
	Holdfast__V1__NodesGetRequest get = HOLDFAST__V1__NODES_GET_REQUEST__INIT;
	Holdfast__V1__NodesListRequest ls = HOLDFAST__V1__NODES_LIST_REQUEST__INIT;
	uint64_t tag;

	for (size_t i = 3; i < n; i++) {
		get.cache |= strcmp(w[i], "cache") == 0;
		if (strncmp(w[i], "watch=", 6) == 0)
			get.watch = (uint64_t)number(w[i] + 6);
	}
	get.path = ls.path = w[2];
	get.session = ls.session = h ? h->id : 0;
	ls.cache = get.cache;
	ls.watch = get.watch;
	tag = mini_request(s->m, at, list ? METHOD_NODES_LIST : METHOD_NODES_GET, list ? &ls.base : &get.base);
	tell_read(s, tag, list, get.cache);
}

static bool read_command(struct story *s, char **w, size_t n)
{
	bool list = strcmp(w[0], "list") == 0 || strcmp(w[0], "ls") == 0;

	if (strcmp(w[0], "get") == 0 || strcmp(w[0], "list") == 0)
		read(s, w, n, list, session(s, w[1]), session(s, w[1])->at);
	else if (strcmp(w[0], "read") == 0 || strcmp(w[0], "ls") == 0)
		read(s, w, n, list, NULL, replica(s, w[1]));
	else
		return false;
	return true;
}

/* ---- writes ---- */

static ProtobufCBinaryData bin(const char *t)
{
	return (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)(t ? t : ""), .len = strlen(t ? t : "") };
}

/* If the key `never` is there: nothing; else a transaction: if it is there: the put. So the put is in a branch that is not taken. */
static uint64_t ask_txn(struct story *s, size_t at, char **w)
{
	Etcdserverpb__TxnRequest outer = ETCDSERVERPB__TXN_REQUEST__INIT, inner = ETCDSERVERPB__TXN_REQUEST__INIT;
	Etcdserverpb__Compare there = ETCDSERVERPB__COMPARE__INIT, *compare[1] = { &there };
	Etcdserverpb__RequestOp put_op = ETCDSERVERPB__REQUEST_OP__INIT, txn_op = ETCDSERVERPB__REQUEST_OP__INIT;
	Etcdserverpb__RequestOp *puts[1] = { &put_op }, *txns[1] = { &txn_op };
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;

	there.key = bin("never");
	there.result = ETCDSERVERPB__COMPARE__COMPARE_RESULT__GREATER;
	put.key = bin(w[1]);
	put.value = bin(w[2]);
	put_op.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
	put_op.request_put = &put;
	txn_op.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_TXN;
	txn_op.request_txn = &inner;
	inner.compare = outer.compare = compare;
	inner.n_compare = outer.n_compare = 1;
	inner.success = puts;
	inner.n_success = 1;
	outer.failure = txns;
	outer.n_failure = 1;
	return mini_request(s->m, at, METHOD_KV_TXN, &outer.base);
}

static uint64_t ask_node(struct story *s, size_t at, char **w, size_t n)
{
	Holdfast__V1__NodesCreateRequest create = HOLDFAST__V1__NODES_CREATE_REQUEST__INIT;
	Holdfast__V1__NodesSetRequest set = HOLDFAST__V1__NODES_SET_REQUEST__INIT;
	Holdfast__V1__NodesDeleteRequest del = HOLDFAST__V1__NODES_DELETE_REQUEST__INIT;
	const char *version = option(w, n, "version="), *of = option(w, n, "of=");

	create.path = set.path = del.path = w[1];
	create.value = set.value = bin(n > 2 ? w[2] : "");
	create.sequential = option(w, n, "sequence") != NULL;
	create.session = of ? session(s, of)->id : 0;
	set.create = version == NULL;
	set.if_version = del.if_version = number(version);
	if (version) {
		set.condition_case = HOLDFAST__V1__NODES_SET_REQUEST__CONDITION_IF_VERSION;
		del.condition_case = HOLDFAST__V1__NODES_DELETE_REQUEST__CONDITION_IF_VERSION;
	}
	if (strcmp(w[0], "create") == 0)
		return mini_request(s->m, at, METHOD_NODES_CREATE, &create.base);
	if (strcmp(w[0], "set") == 0)
		return mini_request(s->m, at, METHOD_NODES_SET, &set.base);
	return mini_request(s->m, at, METHOD_NODES_DELETE, &del.base);
}

static uint64_t ask_user(struct story *s, size_t at, char **w)
{
	Etcdserverpb__AuthUserAddRequest add = ETCDSERVERPB__AUTH_USER_ADD_REQUEST__INIT;
	Authpb__UserAddOptions no_password = AUTHPB__USER_ADD_OPTIONS__INIT;
	Etcdserverpb__AuthUserDeleteRequest drop = ETCDSERVERPB__AUTH_USER_DELETE_REQUEST__INIT;
	Etcdserverpb__AuthUserGrantRoleRequest give = ETCDSERVERPB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;
	Etcdserverpb__AuthUserRevokeRoleRequest unrole = ETCDSERVERPB__AUTH_USER_REVOKE_ROLE_REQUEST__INIT;

	add.name = drop.name = give.user = unrole.name = w[1];
	add.options = &no_password;
	no_password.no_password = true;
	give.role = unrole.role = w[2];
	if (strcmp(w[0], "user") == 0)
		return mini_request(s->m, at, METHOD_AUTH_USER_ADD, &add.base);
	if (strcmp(w[0], "drop") == 0)
		return mini_request(s->m, at, METHOD_AUTH_USER_DELETE, &drop.base);
	if (strcmp(w[0], "give") == 0)
		return mini_request(s->m, at, METHOD_AUTH_USER_GRANT_ROLE, &give.base);
	ASSERT(strcmp(w[0], "unrole") == 0);
	return mini_request(s->m, at, METHOD_AUTH_USER_REVOKE_ROLE, &unrole.base);
}

static uint64_t ask_auth(struct story *s, size_t at, char **w)
{
	Etcdserverpb__AuthEnableRequest enable = ETCDSERVERPB__AUTH_ENABLE_REQUEST__INIT;
	Etcdserverpb__AuthDisableRequest disable = ETCDSERVERPB__AUTH_DISABLE_REQUEST__INIT;
	Etcdserverpb__AuthRoleAddRequest role = ETCDSERVERPB__AUTH_ROLE_ADD_REQUEST__INIT;
	Etcdserverpb__AuthRoleDeleteRequest remove = ETCDSERVERPB__AUTH_ROLE_DELETE_REQUEST__INIT;
	Etcdserverpb__AuthRoleGrantPermissionRequest permit = ETCDSERVERPB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;
	Etcdserverpb__AuthRoleRevokePermissionRequest forbid = ETCDSERVERPB__AUTH_ROLE_REVOKE_PERMISSION_REQUEST__INIT;
	Authpb__Permission perm = AUTHPB__PERMISSION__INIT;

	role.name = remove.role = permit.name = forbid.role = w[1];
	if (strcmp(w[0], "enable") == 0)
		return mini_request(s->m, at, METHOD_AUTH_ENABLE, &enable.base);
	if (strcmp(w[0], "disable") == 0)
		return mini_request(s->m, at, METHOD_AUTH_DISABLE, &disable.base);
	if (strcmp(w[0], "role") == 0)
		return mini_request(s->m, at, METHOD_AUTH_ROLE_ADD, &role.base);
	if (strcmp(w[0], "delete") == 0)
		return mini_request(s->m, at, METHOD_AUTH_ROLE_DELETE, &remove.base);
	if (strcmp(w[0], "forbid") == 0) {
		forbid.key = bin(w[2]);
		forbid.range_end = bin(w[3]);
		return mini_request(s->m, at, METHOD_AUTH_ROLE_REVOKE_PERMISSION, &forbid.base);
	}
	if (strcmp(w[0], "permit") != 0)
		return ask_user(s, at, w);
	perm.permtype = strcmp(w[2], "read") == 0    ? AUTHPB__PERMISSION__TYPE__READ :
	                strcmp(w[2], "write") == 0 ? AUTHPB__PERMISSION__TYPE__WRITE :
	                                             AUTHPB__PERMISSION__TYPE__READWRITE;
	perm.key = bin(w[3]);
	perm.range_end = bin(w[4]);
	permit.perm = &perm;
	return mini_request(s->m, at, METHOD_AUTH_ROLE_GRANT_PERMISSION, &permit.base);
}

static uint64_t ask_with_stream(struct story *s, size_t at, char **w, size_t n)
{
	V3lockpb__LockRequest lock = V3LOCKPB__LOCK_REQUEST__INIT;
	V3electionpb__CampaignRequest campaign = V3ELECTIONPB__CAMPAIGN_REQUEST__INIT;

	lock.name = campaign.name = bin(w[1]);
	lock.lease = campaign.lease = session(s, option(w, n, "of="))->id;
	if (option(w, n, "id="))
		mini_once(s->m, lock.lease, (uint64_t)number(option(w, n, "id=")), 1);
	lock.with_stream = campaign.with_stream = true;
	lock.stream = campaign.stream = number(option(w, n, "attempt="));
	campaign.value = bin(w[2]);
	if (strcmp(w[0], "claim") == 0)
		return mini_request(s->m, at, METHOD_LOCK_LOCK, &lock.base);
	return mini_request(s->m, at, METHOD_ELECTION_CAMPAIGN, &campaign.base);
}

static uint64_t ask(struct story *s, size_t at, char **w, size_t n)
{
	Etcdserverpb__DeleteRangeRequest del = ETCDSERVERPB__DELETE_RANGE_REQUEST__INIT;

	if (strcmp(w[0], "auth") == 0)
		return ask_auth(s, at, w + 1);

	if (strcmp(w[0], "put") == 0)
		return mini_put(s->m, at, w[1], w[2], 0);
	if (strcmp(w[0], "txn") == 0)
		return ask_txn(s, at, w);
	if (strcmp(w[0], "lock") == 0)
		return mini_lock(s->m, at, w[1], number(w[2]));
	if (strcmp(w[0], "claim") == 0 || strcmp(w[0], "lead") == 0)
		return ask_with_stream(s, at, w, n);
	if (strcmp(w[0], "del") != 0)
		return ask_node(s, at, w, n);
	del.key = bin(w[1]);
	if (n > 2)
		del.range_end = bin(w[2]);
	return mini_request(s->m, at, METHOD_KV_DELETE_RANGE, &del.base);
}

static void write_command(struct story *s, char **w, size_t n)
{
	struct label *l = &s->labels[s->labels_len++];

	ASSERT(s->labels_len <= NAMES_MAX && n >= 5);
	*l = (struct label){ .asked = mini_now(s->m) };
	snprintf(l->name, sizeof l->name, "%s", w[1]);
	l->tag = ask(s, replica(s, w[2]), w + 3, n - 3);
}

static void tell_time(struct story *s, time_ms asked, time_ms at)
{
	if (at - asked >= 500)
		buf_printf(&s->out, " after %llu.%llu s", (unsigned long long)((at - asked + 50) / 1000), (unsigned long long)((at - asked + 50) / 100 % 10));
	buf_printf(&s->out, "\n");
}

static void tell_labels(struct story *s)
{
	for (size_t i = 0; i < s->labels_len; i++) {
		struct label *l = &s->labels[i];
		const struct mini_answer *a = l->told ? NULL : mini_answer(s->m, l->tag);
		struct slice node;

		if (!a)
			continue;
		l->told = true;
		node = wire_find_bytes(buf_view(&a->reply), 2);
		buf_printf(&s->out, "%s: %s", l->name, a->err ? err_name(a->err) : "done");
		if (!a->err && wire_find_bytes(node, 1).len)
			tell_node(s, node);
		tell_time(s, l->asked, a->at);
	}
}

static void tell_waiting(struct story *s, char **w, size_t n)
{
	for (size_t k = 1; k < n; k++)
		for (size_t i = 0; i < s->labels_len; i++)
			if (strcmp(s->labels[i].name, w[k]) == 0)
				buf_printf(&s->out, "%s: %s\n", w[k], s->labels[i].told ? "was answered" : "waits");
}

static void cancel(struct story *s, char **w)
{
	for (size_t i = 0; i < s->labels_len; i++)
		if (strcmp(s->labels[i].name, w[2]) == 0)
			mini_cancel(s->m, replica(s, w[1]), s->labels[i].tag);
}

static void tell_stats(struct story *s)
{
	struct core_status st;

	core_status(mini_core(s->m, mini_leader(s->m)), &st);
	buf_printf(&s->out, "%llu sessions, %llu things cached, %llu pairs, %llu owing, %llu writes wait\n", (unsigned long long)st.open_sessions,
		   (unsigned long long)st.cached_things, (unsigned long long)st.cached_pairs, (unsigned long long)st.sessions_owing,
		   (unsigned long long)st.gated);
}

static void tell(struct story *s, uint64_t tag)
{
	const struct mini_answer *a = mini_wait(s->m, tag, PATIENCE_MS);

	buf_printf(&s->out, "%s\n", !a ? "no answer" : a->err ? err_name(a->err) : "ok");
}

/* ---- many at once ---- */

static void flood(struct story *s, char **w)
{
	Holdfast__V1__NodesSetRequest set = HOLDFAST__V1__NODES_SET_REQUEST__INIT;
	Holdfast__V1__NodesGetRequest get = HOLDFAST__V1__NODES_GET_REQUEST__INIT;
	bool watch = strcmp(w[2], "watch") == 0;
	size_t at = watch ? session(s, w[3])->at : replica(s, w[3]);

	set.path = get.path = w[4];
	set.create = true;
	set.value.len = (size_t)number(w[5]);
	set.value.data = mem_zalloc(set.value.len + 1);
	get.session = watch ? session(s, w[3])->id : 0;
	s->flood_len = (size_t)number(w[1]);
	for (size_t i = 0; i < s->flood_len; i++) {
		uint64_t tag;

		get.watch = i + 1;
		tag = mini_request(s->m, at, watch ? METHOD_NODES_GET : METHOD_NODES_SET, watch ? &get.base : &set.base);
		s->flood = i ? s->flood : tag;
		ASSERT(tag == s->flood + i);
	}
	free(set.value.data);
}

static void tally(struct story *s)
{
	size_t done = 0, failed = 0;
	enum err last = ERR_OK;

	for (size_t i = 0; i < s->flood_len; i++) {
		const struct mini_answer *a = mini_answer(s->m, s->flood + i);

		done += a && !a->err;
		failed += a && a->err;
		ASSERT(!a || !a->err || !last || last == a->err);
		last = a && a->err ? a->err : last;
	}
	buf_printf(&s->out, "%zu done, %zu wait, %zu %s\n", done, s->flood_len - done - failed, failed, failed ? err_name(last) : "failed");
}

/* ---- commands ---- */

static bool cell_command(struct story *s, char **w)
{
	if (strcmp(w[0], "cell") == 0) {
		mini_free(s->m);
		s->labels_len = s->sessions_len = 0;
		s->replicas = (size_t)number(w[1]);
		s->m = mini_new(&(struct mini_options){ .replicas = s->replicas, .seed = 1, .disk_ms = 1, .net_ms = 1, .snapshot_count = 20, .snapshot_keep = 5,
		                                      .check_every = (uint32_t)number(w[2]) });
		mini_on_output(s->m, on_output, s);
	} else if (strcmp(w[0], "elect") == 0) {
		elect(s);
	} else if (strcmp(w[0], "run") == 0) {
		run(s, (time_ms)number(w[1]));
	} else if (strcmp(w[0], "crash") == 0) {
		mini_crash(s->m, replica(s, w[1]));
	} else if (strcmp(w[0], "restart") == 0) {
		mini_restart(s->m, replica(s, w[1]));
	} else if (strcmp(w[0], "cut") == 0) {
		mini_isolate(s->m, replica(s, w[1]), true);
	} else if (strcmp(w[0], "join") == 0) {
		mini_isolate(s->m, replica(s, w[1]), false);
	} else if (strcmp(w[0], "stall") == 0) {
		mini_stall(s->m, replica(s, w[1]), true);
	} else if (strcmp(w[0], "flow") == 0) {
		mini_stall(s->m, replica(s, w[1]), false);
	} else {
		return false;
	}
	return true;
}

static bool other_command(struct story *s, char **w, size_t n)
{
	if (strcmp(w[0], "write") == 0)
		write_command(s, w, n);
	else if (strcmp(w[0], "cancel") == 0)
		cancel(s, w);
	else if (strcmp(w[0], "waits") == 0)
		tell_waiting(s, w, n);
	else if (strcmp(w[0], "stats") == 0)
		tell_stats(s);
	else if (strcmp(w[0], "flood") == 0)
		flood(s, w);
	else if (strcmp(w[0], "tally") == 0)
		tally(s);
	else if (strcmp(w[0], "grant") == 0)
		tell(s, mini_grant(s->m, replica(s, w[1]), number(w[2]), number(w[3])));
	else if (strcmp(w[0], "as") == 0)
		mini_as(s->m, strcmp(w[1], "nobody") == 0 ? NULL : w[1]);
	else if (strcmp(w[0], "auth") == 0)
		tell(s, ask_auth(s, replica(s, "leader"), w + 1));
	else if (strcmp(w[0], "revoke") == 0)
		tell(s, mini_revoke(s->m, replica(s, w[1]), session(s, w[2])->id));
	else
		return false;
	return true;
}

static void command(struct story *s, char *line)
{
	char *words[WORDS_MAX + 1] = { 0 };
	size_t n = 0;

	for (char *p = strtok(line, " "); p && n < WORDS_MAX; p = strtok(NULL, " "))
		words[n++] = p;
	if (!cell_command(s, words) && !stream_command(s, words, n) && !read_command(s, words, n) && !other_command(s, words, n)) {
		fprintf(stderr, "no such command: %s\n", words[0]);
		exit(2);
	}
	if (strcmp(words[0], "elect") != 0 && strcmp(words[0], "cell") != 0)
		run(s, 100); /* time for an answer */
	tell_labels(s);
}

/* ---- files ---- */

static bool read_line(FILE *f, char *line, size_t size)
{
	if (!fgets(line, (int)size, f))
		return false;
	line[strcspn(line, "\n")] = 0;
	return true;
}

/* Runs a story; what it comes to now, whole, is appended to ret. */
static void run_file(FILE *f, struct buf *ret)
{
	struct story s = { 0 };
	char line[512];
	bool expected = false;

	while (read_line(f, line, sizeof line)) {
		if (expected) { /* what came of it before: up to the empty line */
			expected = line[0] != 0;
			if (!expected)
				buf_printf(ret, "\n");
			continue;
		}
		buf_printf(ret, "%s\n", line);
		if (strcmp(line, "----") == 0) {
			buf_append_slice(ret, buf_view(&s.out));
			buf_clear(&s.out);
			expected = true;
		} else if (line[0] && line[0] != '#') {
			command(&s, line);
		}
	}
	mini_free(s.m);
	buf_free(&s.out);
}

static void slurp(FILE *f, struct buf *ret)
{
	char bytes[4096];
	size_t n;

	rewind(f);
	while ((n = fread(bytes, 1, sizeof bytes, f)) > 0)
		buf_append(ret, bytes, n);
}

static bool run_path(const char *path, bool rewrite)
{
	struct buf now = { 0 }, before = { 0 };
	FILE *f = fopen(path, "r");
	bool same;

	if (!f) {
		fprintf(stderr, "cannot open %s\n", path);
		return false;
	}
	run_file(f, &now);
	slurp(f, &before);
	fclose(f);
	same = slice_eq(buf_view(&now), buf_view(&before));
	if (!same && rewrite) {
		f = fopen(path, "w");
		ASSERT(f);
		fwrite(now.ptr, 1, now.len, f);
		fclose(f);
	} else if (!same) {
		fprintf(stderr, "%s tells another story now:\n%.*s", path, (int)now.len, (const char *)now.ptr);
	}
	buf_free(&now);
	buf_free(&before);
	return same || rewrite;
}

int main(int argc, char **argv)
{
	bool rewrite = argc > 1 && strcmp(argv[1], "--rewrite") == 0, all = true;

	for (int i = rewrite ? 2 : 1; i < argc; i++)
		all &= run_path(argv[i], rewrite);
	return all ? EXIT_SUCCESS : EXIT_FAILURE;
}
