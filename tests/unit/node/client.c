/* client.c: see client.h. */
#include "client.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/mem.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3lock.pb-c.h"

static void on_done(struct submit_call *base, enum err err, struct buf *reply, struct buf *details)
{
	struct client *c = CONTAINER_OF(base, struct client, base);
	ck_assert_uint_eq(atomic_fetch_add(&c->times, 1), 0);
	c->err = err;
	c->reply = buf_take(reply);
	c->details = buf_take(details);
	sem_post(&c->over);
}

static struct buf packed(const ProtobufCMessage *m)
{
	struct buf b = { .ptr = NULL };
	if (!m)
		return b;
	buf_reserve(&b, protobuf_c_message_get_packed_size(m) + 1);
	b.len = protobuf_c_message_pack(m, b.ptr);
	return b;
}

struct client *client_try(struct replica *r, enum method_id method, const ProtobufCMessage *request, enum err *ret_refused)
{
	struct client *c = mem_zalloc(sizeof(*c));
	enum err e;
	c->replica = r;
	c->request = packed(request);
	c->base.method = method;
	c->base.bytes = buf_view(&c->request);
	c->base.client = slice_of_str("127.0.0.1:7");
	c->base.done = on_done;
	sem_init(&c->over, 0, 0);
	e = node_submit(r->node, &c->base);
	if (!e)
		return c;
	ck_assert_msg(ret_refused != NULL, "refused: %s", err_text(e));
	*ret_refused = e;
	atomic_store(&c->times, 1);
	client_free(c);
	return NULL;
}

struct client *client_start(struct replica *r, enum method_id method, const ProtobufCMessage *request)
{
	return client_try(r, method, request, NULL);
}

void client_cancel(struct client *c)
{
	node_cancel(c->replica->node, c->base.tag);
}

bool client_is_over(struct client *c)
{
	int n = 0;
	sem_getvalue(&c->over, &n);
	return n > 0;
}

enum err client_wait(struct client *c)
{
	struct timespec until;
	int rc;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_MS / 1000;
	do
		rc = sem_timedwait(&c->over, &until);
	while (rc && errno == EINTR);
	ck_assert_msg(!rc, "a call of %s was not answered", method_by_id(c->base.method)->path);
	sem_post(&c->over);
	return c->err;
}

void client_free(struct client *c)
{
	ck_assert_uint_eq(atomic_load(&c->times), 1);
	sem_destroy(&c->over);
	buf_free(&c->request);
	buf_free(&c->reply);
	buf_free(&c->details);
	free(c);
}

enum err client_end(struct client *c)
{
	enum err e = client_wait(c);
	client_free(c);
	return e;
}

static ProtobufCBinaryData data(struct slice s)
{
	return (ProtobufCBinaryData){ s.len, (uint8_t *)(uintptr_t)s.ptr };
}

static ProtobufCBinaryData text(const char *s)
{
	return data(slice_of_str(s));
}

struct client *put_start(struct replica *r, const char *key, struct slice value, lease_id lease)
{
	Etcdserverpb__PutRequest q = ETCDSERVERPB__PUT_REQUEST__INIT;
	q.key = text(key);
	q.value = data(value);
	q.lease = lease;
	return client_start(r, METHOD_KV_PUT, &q.base);
}

struct client *lock_start(struct replica *r, const char *name, lease_id lease)
{
	V3lockpb__LockRequest q = V3LOCKPB__LOCK_REQUEST__INIT;
	q.name = text(name);
	q.lease = lease;
	return client_start(r, METHOD_LOCK_LOCK, &q.base);
}

struct client *get_start(struct replica *r, const char *key)
{
	Etcdserverpb__RangeRequest q = ETCDSERVERPB__RANGE_REQUEST__INIT;
	q.key = text(key);
	return client_start(r, METHOD_KV_RANGE, &q.base);
}

enum err put(struct replica *r, const char *key, const char *value)
{
	return client_end(put_start(r, key, slice_of_str(value), 0));
}

enum err delete(struct replica *r, const char *key)
{
	Etcdserverpb__DeleteRangeRequest q = ETCDSERVERPB__DELETE_RANGE_REQUEST__INIT;
	q.key = text(key);
	return client_end(client_start(r, METHOD_KV_DELETE_RANGE, &q.base));
}

enum err grant(struct replica *r, lease_id id, int64_t ttl_s)
{
	Etcdserverpb__LeaseGrantRequest q = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;
	q.id = id;
	q.ttl = ttl_s;
	return client_end(client_start(r, METHOD_LEASE_GRANT, &q.base));
}

enum err revoke(struct replica *r, lease_id id)
{
	Etcdserverpb__LeaseRevokeRequest q = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;
	q.id = id;
	return client_end(client_start(r, METHOD_LEASE_REVOKE, &q.base));
}

enum err keep_alive(struct replica *r, lease_id id)
{
	Etcdserverpb__LeaseKeepAliveRequest q = ETCDSERVERPB__LEASE_KEEP_ALIVE_REQUEST__INIT;
	q.id = id;
	return client_end(client_start(r, METHOD_LEASE_KEEP_ALIVE, &q.base));
}

enum err lock(struct replica *r, const char *name, lease_id lease)
{
	return client_end(lock_start(r, name, lease));
}

enum err unlock(struct replica *r, const char *name, lease_id lease)
{
	V3lockpb__UnlockRequest q = V3LOCKPB__UNLOCK_REQUEST__INIT;
	char key[128];
	snprintf(key, sizeof(key), "%s/%" PRIx64, name, (uint64_t)lease);
	q.key = text(key);
	return client_end(client_start(r, METHOD_LOCK_UNLOCK, &q.base));
}

void expect(struct replica *r, const char *key, const char *value)
{
	struct client *c = get_start(r, key);
	Etcdserverpb__RangeResponse *p;
	ck_assert_int_eq(client_wait(c), ERR_OK);
	p = etcdserverpb__range_response__unpack(NULL, c->reply.len, c->reply.ptr);
	ck_assert_ptr_nonnull(p);
	ck_assert_uint_eq(p->n_kvs, value ? 1 : 0);
	if (value)
		ck_assert(slice_eq(slice_of(p->kvs[0]->value.data, p->kvs[0]->value.len), slice_of_str(value)));
	etcdserverpb__range_response__free_unpacked(p, NULL);
	client_free(c);
}
