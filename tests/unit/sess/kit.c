/* kit.c: see kit.h. */
#include "kit.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "errors.h"

#define UPDATES_MAX 4096

struct kit kit;
static uint64_t last_stream;

static void collect(void)
{
	struct sess_update more;
	sess_take(kit.s, &more);
	for (size_t i = 0; i < more.len; i++) {
		if (more.at[i].kind == SESS_CONNECT)
			last_stream = more.at[i].stream;
	}
	ck_assert_uint_le(kit.u.len + more.len, UPDATES_MAX);
	if (more.len)
		memcpy(kit.u.at + kit.u.len, more.at, more.len * sizeof(*more.at));
	kit.u.len += more.len;
	free(more.at);
}

void kit_step(struct sess_event e)
{
	e.now_ms = kit.now;
	sess_step(kit.s, &e);
	collect();
}

void kit_ask(struct sess_ask a)
{
	if (!a.deadline_ms)
		a.deadline_ms = SESS_NEVER;
	kit_step((struct sess_event){ .kind = SESS_ASK, .ask = a });
}

void kit_at(uint64_t ms)
{
	uint64_t next;
	while ((next = sess_next_ms(kit.s)) <= ms && next > kit.now) {
		kit.now = next;
		kit_step((struct sess_event){ .kind = SESS_TICK });
	}
	kit.now = ms;
	kit_step((struct sess_event){ .kind = SESS_TICK });
}

struct sess_out *kit_next(enum sess_out_kind kind)
{
	while (kit.at < kit.u.len) {
		struct sess_out *o = &kit.u.at[kit.at++];
		if (o->kind == kind)
			return o;
	}
	ck_abort_msg("no update of kind %d", kind);
}

bool kit_any(enum sess_out_kind kind)
{
	for (size_t i = kit.at; i < kit.u.len; i++) {
		if (kit.u.at[i].kind == kind)
			return true;
	}
	return false;
}

Holdfast__V1__SessionRequest *kit_sent(int request_case)
{
	for (;;) {
		struct sess_out *o = kit_next(SESS_SEND);
		Holdfast__V1__SessionRequest *m = holdfast__v1__session_request__unpack(NULL, o->bytes.len, o->bytes.ptr);
		ck_assert_ptr_nonnull(m);
		if ((int)m->request_case == request_case)
			return m;
		kit_sent_free(m);
	}
}

void kit_sent_free(Holdfast__V1__SessionRequest *m)
{
	holdfast__v1__session_request__free_unpacked(m, NULL);
}

uint64_t kit_stream(void)
{
	return last_stream;
}

void kit_tell(Holdfast__V1__SessionResponse m)
{
	uint8_t bytes[4096];
	size_t len = holdfast__v1__session_response__get_packed_size(&m);
	ck_assert_uint_le(len, sizeof(bytes));
	holdfast__v1__session_response__pack(&m, bytes);
	kit_step((struct sess_event){ .kind = SESS_STREAM_MESSAGE, .stream = last_stream, .bytes = slice_of(bytes, len) });
}

void kit_kept_alive(uint64_t sequence, uint64_t term, bool cache)
{
	Holdfast__V1__SessionResponse m = HOLDFAST__V1__SESSION_RESPONSE__INIT;
	Holdfast__V1__SessionKeptAlive k = HOLDFAST__V1__SESSION_KEPT_ALIVE__INIT;
	k.sequence = sequence;
	k.ttl = TTL;
	k.term = term;
	k.cache_extended = cache;
	m.response_case = HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_KEPT_ALIVE;
	m.kept_alive = &k;
	kit_tell(m);
}

uint64_t kit_keep_alive_sequence(void)
{
	Holdfast__V1__SessionRequest *m = kit_sent(HOLDFAST__V1__SESSION_REQUEST__REQUEST_KEEP_ALIVE);
	uint64_t n = m->keep_alive->sequence;
	kit_sent_free(m);
	return n;
}

void kit_invalidate(uint64_t number, uint64_t term, const char *path, bool all)
{
	Holdfast__V1__SessionResponse m = HOLDFAST__V1__SESSION_RESPONSE__INIT;
	Holdfast__V1__SessionInvalidation v = HOLDFAST__V1__SESSION_INVALIDATION__INIT;
	Holdfast__V1__NodeItem item = HOLDFAST__V1__NODE_ITEM__INIT, *items = &item;
	item.path = (char *)(uintptr_t)path;
	v.number = number;
	v.term = term;
	v.all = all;
	v.n_items = path ? 1 : 0;
	v.items = &items;
	m.response_case = HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_INVALIDATION;
	m.invalidation = &v;
	kit_tell(m);
}

void kit_reply(const struct sess_out *call, int status, const char *text, const ProtobufCMessage *m)
{
	uint8_t bytes[4096];
	size_t len = m ? protobuf_c_message_pack(m, bytes) : 0;
	kit_step((struct sess_event){ .kind = SESS_REPLY, .call = call->call, .attempt = call->attempt, .status = status, .text = slice_of_str(text),
				      .bytes = slice_of(bytes, len) });
}

void kit_value(const struct sess_out *call, const char *path, const char *value, int64_t mod, uint64_t grant_term)
{
	Holdfast__V1__NodesGetResponse r = HOLDFAST__V1__NODES_GET_RESPONSE__INIT;
	Etcdserverpb__ResponseHeader h = ETCDSERVERPB__RESPONSE_HEADER__INIT;
	Holdfast__V1__Node n = HOLDFAST__V1__NODE__INIT;
	Holdfast__V1__NodesGrant g = HOLDFAST__V1__NODES_GRANT__INIT;
	h.revision = mod;
	n.path = (char *)(uintptr_t)path;
	n.mod_revision = mod;
	n.version = 1;
	g.term = grant_term;
	r.header = &h;
	if (value) {
		n.value = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)value, .len = strlen(value) };
		r.node = &n;
	}
	if (grant_term)
		r.grant = &g;
	kit_reply(call, STATUS_OK, "", &r.base);
}

static uint64_t tags = 1000;

void kit_cache(const char *path, const char *value, int64_t mod)
{
	kit_ask((struct sess_ask){ .kind = SESS_ASK_GET, .tag = ++tags, .path = slice_of_str(path) });
	kit_value(kit_next(SESS_CALL), path, value, mod, sess_term(kit.s));
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_OK);
}

bool kit_cached(const char *path)
{
	struct sess_cached c;
	return sess_cache_load(kit.s, slice_of_str(path), false, &c) && sess_cache_confirm(kit.s, &c, kit.now);
}

static void setup(const char *prefix, uint32_t endpoints)
{
	const char *const prefixes[] = { prefix, NULL };
	struct sess_config config = { .endpoints = endpoints, .seed = 3, .ttl_s = TTL, .grace_ms = 45000, .cache_max = 100, .cache_prefixes = prefixes, .open_tag = 1,
				      .open_deadline_ms = 1000000 + 30000 };
	kit = (struct kit){ .now = 1000000 };
	kit.u.at = mem_zalloc(UPDATES_MAX * sizeof(*kit.u.at)); /* tests keep pointers into it */
	kit.s = sess_new(&config, kit.now);
	kit_step((struct sess_event){ .kind = SESS_TICK });
}

void kit_setup_under(const char *prefix)
{
	setup(prefix, 2);
}

void kit_setup_at(uint32_t endpoints)
{
	setup("/", endpoints);
}

void kit_setup(void)
{
	kit_setup_under("/");
}

void kit_open(void)
{
	Holdfast__V1__SessionResponse m = HOLDFAST__V1__SESSION_RESPONSE__INIT;
	Holdfast__V1__SessionOpened o = HOLDFAST__V1__SESSION_OPENED__INIT;
	static uint8_t secret[32] = { 9 };
	o.session = LEASE;
	o.secret = (ProtobufCBinaryData){ .data = secret, .len = sizeof(secret) };
	o.ttl = TTL;
	o.term = 5;
	o.revision = 100;
	m.response_case = HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_OPENED;
	m.opened = &o;
	if (sess_id(kit.s)) {
		o.resumed = 1;
		o.secret.len = 0;
	}
	kit_tell(m);
}

void kit_teardown(void)
{
	sess_free(kit.s);
	sess_update_free(&kit.u);
}
