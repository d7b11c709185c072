/* session.c: see session.h. */
#include "session.h"

#include "base/clock.h"
#include "base/mem.h"
#include "etcd/rpc.pb-c.h"

enum { RETRY_MS = 50, FIRST_PATIENCE_MS = 1000, PATIENCE_MIN_MS = 300 };

static uint64_t ttl_ms(int64_t ttl_s)
{
	return (uint64_t)ttl_s * 1000;
}

/* A1 */
void session_granted(struct session *s, uint64_t sent_ms, int64_t ttl_s)
{
	uint64_t end = sent_ms + ttl_ms(ttl_s) - ttl_ms(ttl_s) / 100;
	s->ttl_s = ttl_s;
	if (end > s->end_ms)
		s->end_ms = end;
	s->next_ms = sent_ms + ttl_ms(ttl_s) / 3;
}

void session_init(struct session *s, struct link *l, int64_t lease)
{
	*s = (struct session){ .link = l, .lease = lease, .next_ms = boot_ms() };
}

static void leave(struct session *s)
{
	call_drop(s->stream);
	s->stream = NULL;
	if (s->at) {
		link_pass(s->link, s->at);
		s->left = s->at;
		s->failovers++;
		s->misses++;
	}
	s->at = NULL;
	s->sent_ms = 0;
	s->next_ms = boot_ms() + RETRY_MS;
}

void session_deinit(struct session *s)
{
	call_drop(s->stream);
	s->stream = NULL;
}

static void on_message(void *owner, struct slice bytes)
{
	struct session *s = owner;
	ProtobufCMessage *m = message_of(&etcdserverpb__lease_keep_alive_response__descriptor, bytes);
	const Etcdserverpb__LeaseKeepAliveResponse *r = (const Etcdserverpb__LeaseKeepAliveResponse *)m;
	uint64_t sent = s->sent_ms;
	/* A2: an answer to nothing, or to something else, is a replica that makes no sense. */
	if (!m || !sent || r->id != s->lease) {
		leave(s);
	} else if (r->ttl <= 0) {
		s->gone = true;
	} else {
		s->sent_ms = 0;
		s->misses = 0;
		s->renewals++;
		session_granted(s, sent, r->ttl);
	}
	if (m)
		protobuf_c_message_free_unpacked(m, NULL);
}

static void on_end(void *owner, int code, const char *text, struct slice details)
{
	struct session *s = owner;
	(void)text, (void)details;
	s->stream = NULL;
	if (code == STATUS_NOT_FOUND)
		s->gone = true;
	leave(s);
}

static const struct call_class stream_class = { on_message, on_end };

static uint64_t patience_ms(const struct session *s)
{
	uint64_t p = s->ttl_s ? ttl_ms(s->ttl_s) / 10 : FIRST_PATIENCE_MS;
	if (p < PATIENCE_MIN_MS)
		p = PATIENCE_MIN_MS;
	return p << (s->misses < 2 ? s->misses : 2);
}

static bool send(struct session *s)
{
	Etcdserverpb__LeaseKeepAliveRequest r = ETCDSERVERPB__LEASE_KEEP_ALIVE_REQUEST__INIT;
	r.id = s->lease;
	s->sent_ms = boot_ms();
	if (call_send(s->stream, &r.base))
		return true;
	s->sent_ms = 0;
	return false;
}

uint64_t session_run(struct session *s)
{
	uint64_t now = boot_ms();
	if (s->gone)
		return NEVER_MS;
	if (s->sent_ms) {
		if (now < s->sent_ms + patience_ms(s))
			return s->sent_ms + patience_ms(s);
		leave(s);
	}
	if (now < s->next_ms)
		return s->next_ms;
	if (!s->stream) {
		s->at = link_pick(s->link);
		if (!s->at)
			return now + RETRY_MS;
		s->stream = call_start(s->link, s->at, METHOD_LEASE_KEEP_ALIVE, NULL, NEVER_MS, &stream_class, s);
	}
	if (!send(s))
		return now + RETRY_MS;
	return s->sent_ms + patience_ms(s);
}
