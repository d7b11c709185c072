/* follow.c: see follow.h. */
#include "follow.h"

#include "etcd/rpc.pb-c.h"

enum { RETRY_MS = 300 };

void follow_init(struct follow *f, struct link *l, struct slice key, int64_t rev)
{
	*f = (struct follow){ .link = l, .key = key, .rev = rev };
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

static void on_message(void *owner, struct slice bytes)
{
	struct follow *f = owner;
	ProtobufCMessage *m = message_of(&etcdserverpb__watch_response__descriptor, bytes);
	const Etcdserverpb__WatchResponse *r = (const Etcdserverpb__WatchResponse *)m;
	if (!m)
		return;
	for (size_t i = 0; i < r->n_events; i++)
		f->deleted |= r->events[i]->type == MVCCPB__EVENT__EVENT_TYPE__DELETE;
	/* Cancelled: history from there on is gone, so the key's fate is unknown. Look again from what there is. */
	if (r->canceled && r->compact_revision)
		f->rev = r->compact_revision;
	protobuf_c_message_free_unpacked(m, NULL);
}

static void on_end(void *owner, int code, const char *text, struct slice details)
{
	struct follow *f = owner;
	(void)code, (void)text, (void)details;
	f->call = NULL;
	f->next_ms = now_ms() + RETRY_MS;
}

static const struct call_class class = { on_message, on_end };

uint64_t follow_run(struct follow *f)
{
	Etcdserverpb__WatchRequest r = ETCDSERVERPB__WATCH_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest create = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest__FilterType filter = ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT;
	uint64_t now = now_ms();
	if (f->call || f->deleted)
		return NEVER_MS;
	if (now < f->next_ms)
		return f->next_ms;
	f->at = link_pick(f->link);
	if (!f->at)
		return now + RETRY_MS;
	create.key = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)f->key.ptr, .len = f->key.len };
	create.start_revision = f->rev;
	create.filters = &filter;
	create.n_filters = 1;
	r.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	r.create_request = &create;
	f->call = call_start(f->link, f->at, METHOD_WATCH_WATCH, NULL, NEVER_MS, &class, f);
	call_send(f->call, &r.base);
	return NEVER_MS;
}
