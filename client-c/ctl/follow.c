/* follow.c: see follow.h. */
#include "follow.h"

#include "base/clock.h"
#include "etcd/rpc.pb-c.h"

enum { RETRY_MS = 300 };

void follow_init(struct follow *f, struct link *l, struct slice key, int64_t created)
{
	*f = (struct follow){ .link = l, .key = key, .created = created, .rev = created + 1 };
}

void follow_deinit(struct follow *f)
{
	call_drop(f->call);
	f->call = NULL;
}

void follow_leave(struct follow *f, const struct endpoint *e)
{
	if (!f->call || f->at != e)
		return;
	follow_deinit(f);
	f->next_ms = 0;
}

static void on_watch(void *owner, struct slice bytes)
{
	struct follow *f = owner;
	ProtobufCMessage *m = message_of(&etcdserverpb__watch_response__descriptor, bytes);
	const Etcdserverpb__WatchResponse *r = (const Etcdserverpb__WatchResponse *)m;
	if (!m)
		return;
	for (size_t i = 0; i < r->n_events; i++)
		f->deleted |= r->events[i]->type == MVCCPB__EVENT__EVENT_TYPE__DELETE;
	if (r->canceled) {
		f->rev = r->compact_revision ? 0 : f->rev;
		follow_deinit(f);
		f->next_ms = boot_ms() + RETRY_MS;
	}
	protobuf_c_message_free_unpacked(m, NULL);
}

static void on_look(void *owner, struct slice bytes)
{
	struct follow *f = owner;
	ProtobufCMessage *m = message_of(&etcdserverpb__range_response__descriptor, bytes);
	const Etcdserverpb__RangeResponse *r = (const Etcdserverpb__RangeResponse *)m;
	if (!m || !r->header) {
		/* asked again, as after any failure */
	} else if (r->n_kvs == 0 || r->kvs[0]->create_revision != f->created) {
		f->deleted = true;
	} else {
		f->rev = r->header->revision + 1;
	}
	if (m)
		protobuf_c_message_free_unpacked(m, NULL);
}

static void on_end(void *owner, int code, const char *text, struct slice details)
{
	struct follow *f = owner;
	(void)code, (void)text, (void)details;
	f->call = NULL;
	f->next_ms = boot_ms() + RETRY_MS;
}

static const struct call_class watch_class = { on_watch, on_end }, look_class = { on_look, on_end };

static void watch(struct follow *f, ProtobufCBinaryData key)
{
	Etcdserverpb__WatchRequest r = ETCDSERVERPB__WATCH_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest create = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest__FilterType filter = ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT;
	create.key = key;
	create.start_revision = f->rev;
	create.filters = &filter;
	create.n_filters = 1;
	r.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	r.create_request = &create;
	f->call = call_start(f->link, f->at, METHOD_WATCH_WATCH, NULL, NEVER_MS, &watch_class, f);
	call_send(f->call, &r.base);
}

static void look(struct follow *f, ProtobufCBinaryData key)
{
	Etcdserverpb__RangeRequest r = ETCDSERVERPB__RANGE_REQUEST__INIT;
	r.key = key;
	f->call = call_start(f->link, f->at, METHOD_KV_RANGE, &r.base, NEVER_MS, &look_class, f);
}

uint64_t follow_run(struct follow *f)
{
	ProtobufCBinaryData key = { .data = (uint8_t *)(uintptr_t)f->key.ptr, .len = f->key.len };
	uint64_t now = boot_ms();
	if (f->call || f->deleted)
		return NEVER_MS;
	if (now < f->next_ms)
		return f->next_ms;
	f->at = link_pick(f->link);
	if (!f->at)
		return now + RETRY_MS;
	if (f->rev)
		watch(f, key);
	else
		look(f, key);
	return NEVER_MS;
}
