/* watch.c: one-shot watches, what follows a value, and what observes an election, over lost streams (S6).
 *
 * A watch is armed by a Get or List, whose answer says what was there at that moment. When the stream was lost the cell has forgotten it: it is armed again, and
 * what that answer shows is compared with what was told: whatever changed meanwhile shows in it, and whatever changes later fires. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "etcd/v3election.pb-c.h"
#include "internal.h"

static void release(struct watch *w)
{
	list_remove(&w->node);
	buf_free(&w->path);
	free(w);
}

static void arm(struct sess *s, struct watch *w)
{
	struct call *c;
	enum method_id method = w->observe ? METHOD_ELECTION_OBSERVE : w->children ? METHOD_NODES_LIST : METHOD_NODES_GET;
	c = sess_call_new(s, w->observe ? CALL_OBSERVE : CALL_ARM, method, 0, w->told || w->follow || w->observe ? SESS_NEVER : w->deadline_ms);
	c->watch = w;
}

static void disarm(struct sess *s, struct watch *w)
{
	LIST_FOR_EACH_SAFE(it, next, &s->calls) {
		struct call *c = CONTAINER_OF(it, struct call, node);
		if (c->watch == w)
			sess_call_free(s, c);
	}
}

static bool is_arming(const struct sess *s, const struct watch *w)
{
	LIST_FOR_EACH(it, &s->calls) {
		if (CONTAINER_OF(it, struct call, node)->watch == w)
			return true;
	}
	return false;
}

void watch_ask(struct sess *s, const struct sess_ask *a)
{
	struct watch *w = mem_zalloc(sizeof(*w));
	w->tag = a->tag;
	w->name = ++s->next_watch;
	w->children = a->children;
	w->follow = a->kind == SESS_ASK_FOLLOW;
	w->observe = a->kind == SESS_ASK_OBSERVE;
	w->deadline_ms = a->deadline_ms;
	buf_append_slice(&w->path, w->observe ? a->name : a->path);
	list_push_back(&s->watches, &w->node);
	arm(s, w);
}

static void unwatch(struct sess *s, struct watch *w)
{
	Holdfast__V1__SessionRequest m = HOLDFAST__V1__SESSION_REQUEST__INIT;
	Holdfast__V1__SessionUnwatch u = HOLDFAST__V1__SESSION_UNWATCH__INIT;
	if (w->observe || s->stream_state != STREAM_UP || !sess_may_act(s))
		return;
	u.n_watches = 1;
	u.watches = &w->name;
	m.request_case = HOLDFAST__V1__SESSION_REQUEST__REQUEST_UNWATCH;
	m.unwatch = &u;
	stream_send(s, &m);
}

void watch_stop(struct sess *s, uint64_t tag)
{
	LIST_FOR_EACH(it, &s->watches) {
		struct watch *w = CONTAINER_OF(it, struct watch, node);
		if (w->tag == tag) {
			disarm(s, w);
			unwatch(s, w);
			release(w);
			return;
		}
	}
}

void watch_pack(struct sess *s, struct call *c, struct buf *ret)
{
	struct watch *w = c->watch;
	V3electionpb__LeaderRequest leader = V3ELECTIONPB__LEADER_REQUEST__INIT;
	Holdfast__V1__NodesGetRequest get = HOLDFAST__V1__NODES_GET_REQUEST__INIT;
	Holdfast__V1__NodesListRequest list = HOLDFAST__V1__NODES_LIST_REQUEST__INIT;
	char *path = text_of(buf_view(&w->path));
	w->fired_early = false;
	leader.name = (ProtobufCBinaryData){ .data = w->path.ptr, .len = w->path.len };
	leader.vacancy = true;
	get.path = list.path = path;
	get.session = list.session = s->id;
	get.watch = list.watch = w->name;
	pack_into(ret, w->observe ? &leader.base : w->children ? &list.base : &get.base);
	free(path);
}

/* ---- telling ---- */

static void fire(struct sess *s, struct watch *w, enum hf_code code, enum hf_change change, int64_t revision)
{
	struct sess_out *o = sess_out(s, SESS_FIRED);
	o->tag = w->tag;
	o->code = code;
	o->change = change;
	o->revision = revision;
	buf_append_slice(&o->text, buf_view(&w->path));
	disarm(s, w);
	release(w);
}

static void told(struct sess *s, struct watch *w, enum hf_code code, struct slice text, struct slice bytes)
{
	struct sess_out *o = sess_out(s, SESS_TOLD);
	o->tag = w->tag;
	o->code = code;
	o->method = w->observe ? METHOD_ELECTION_OBSERVE : METHOD_NODES_GET;
	o->revision = s->revision;
	buf_append_slice(&o->text, text);
	buf_append_slice(&o->bytes, bytes);
}

/* What an answer shows: equal for equal things, and for others never (but by a chance of one in 2^64). */
struct shown {
	uint64_t hash;
	bool exists;
	int64_t revision; /* of the cell when it was answered */
	int64_t mod;
};

static uint64_t mix(uint64_t h, uint64_t v)
{
	h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
	h *= 0xff51afd7ed558ccdu;
	return h ^ h >> 33;
}

static bool show_value(struct slice bytes, struct shown *ret)
{
	Holdfast__V1__NodesGetResponse *r = call_unpack(&holdfast__v1__nodes_get_response__descriptor, bytes);
	if (!r)
		return false;
	ret->exists = r->node != NULL;
	ret->mod = r->node ? r->node->mod_revision : 0;
	ret->revision = r->header ? r->header->revision : 0;
	ret->hash = mix(1, (uint64_t)ret->mod);
	protobuf_c_message_free_unpacked(&r->base, NULL);
	return true;
}

static bool show_children(struct slice bytes, struct shown *ret)
{
	Holdfast__V1__NodesListResponse *r = call_unpack(&holdfast__v1__nodes_list_response__descriptor, bytes);
	if (!r)
		return false;
	ret->exists = true;
	ret->revision = r->header ? r->header->revision : 0;
	ret->hash = mix(2, r->more ? 1 : 0);
	for (size_t i = 0; i < r->n_nodes; i++)
		ret->hash = mix(ret->hash, (uint64_t)r->nodes[i]->create_revision);
	protobuf_c_message_free_unpacked(&r->base, NULL);
	return true;
}

/* ---- answers ---- */

static void armed_first(struct sess *s, struct watch *w, const struct sess_event *e)
{
	struct sess_out *o = sess_out(s, SESS_ANSWER);
	o->tag = w->tag;
	o->code = HF_OK;
	o->method = w->children ? METHOD_NODES_LIST : METHOD_NODES_GET;
	o->revision = s->revision;
	buf_append_slice(&o->bytes, e->bytes);
}

static void armed(struct sess *s, struct watch *w, const struct sess_event *e)
{
	struct shown now = { .hash = 0 };
	bool early, first = !w->told;
	if (!(w->children ? show_children : show_value)(e->bytes, &now)) {
		arm(s, w);
		return;
	}
	early = w->fired_early && (w->early_revision > now.revision || w->early_code); /* users and roles move no revision */
	if (w->follow) {
		if (first || now.hash != w->shown)
			told(s, w, now.exists ? HF_OK : HF_NOT_FOUND, slice_of(NULL, 0), e->bytes);
		w->told = true;
		w->shown = now.hash;
		if (early)
			arm(s, w);
		return;
	}
	if (first) {
		armed_first(s, w, e);
		w->told = true;
		w->shown = now.hash;
	}
	if (now.hash != w->shown) {
		unwatch(s, w);
		fire(s, w, HF_OK, w->children ? HF_CHILDREN_CHANGED : now.exists ? HF_CHANGED : HF_DELETED, now.exists && !w->children ? now.mod : now.revision);
	} else if (early) {
		fire(s, w, w->early_code, w->early_change, w->early_revision);
	}
}

static void refuse(struct sess *s, struct watch *w, enum hf_code code, struct slice text)
{
	char *t = text_of(text);
	if (w->follow || w->observe)
		told(s, w, code, text, slice_of(NULL, 0));
	else if (!w->told)
		sess_answer(s, w->tag, code, t);
	free(t);
	if (w->told && !w->follow && !w->observe) {
		fire(s, w, code, HF_CHANGED, 0);
		return;
	}
	disarm(s, w);
	release(w);
}

void watch_reply(struct sess *s, struct call *c, const struct sess_event *e)
{
	struct watch *w = c->watch;
	bool again;
	enum hf_code code = call_code(e->status, e->text, &again);
	/* The cell does not know our stream there (yet, or any more): it will. An Observe that ends is taken up again. */
	if (again || slice_eq(e->text, slice_of_str(err_text(ERR_SESSION_ELSEWHERE))) || (w->observe && code == HF_OK) ||
	    (code == HF_BUSY && (w->told || w->follow || w->observe))) {
		call_again(s, c);
		return;
	}
	if (code != HF_OK) {
		refuse(s, w, code, e->text);
		return;
	}
	sess_call_free(s, c);
	armed(s, w, e);
}

void watch_timeout(struct sess *s, struct call *c, enum hf_code code, const char *text)
{
	refuse(s, c->watch, code, slice_of_str(text));
}

/* OBSERVE: another replica begins with the present leader, which may be known. */
void watch_part(struct sess *s, struct call *c, struct slice bytes)
{
	V3electionpb__LeaderResponse *r = call_unpack(&v3electionpb__leader_response__descriptor, bytes);
	struct watch *w = c->watch;
	int64_t token, mod, older;
	bool vacant;
	if (!r)
		return;
	vacant = r->vacant || !r->kv;
	token = vacant ? 0 : r->kv->create_revision;
	mod = vacant ? 0 : r->kv->mod_revision;
	protobuf_c_message_free_unpacked(&r->base, NULL);
	/* Leaders come by rising tokens, the values of one by rising revisions. Revisions alone tell nothing: who waits has a key older than what the leader before
	 * it published last. */
	older = token != w->observed_token ? w->observed_token - token : w->observed_mod - mod;
	if (w->told && (vacant ? w->observed_vacant : older >= 0 && !w->observed_vacant))
		return;
	if (!vacant && older > 0)
		return; /* a replica that is behind */
	w->told = true;
	w->observed_vacant = vacant;
	if (!vacant) {
		w->observed_token = token;
		w->observed_mod = mod;
	}
	told(s, w, vacant ? HF_NOT_FOUND : HF_OK, slice_of(NULL, 0), bytes);
}

#define DENIED HOLDFAST__V1__NODE_CHANGE__NODE_DENIED

static enum hf_change change_of(Holdfast__V1__NodeChange c)
{
	switch (c) {
	case HOLDFAST__V1__NODE_CHANGE__NODE_DELETED: return HF_DELETED;
	case HOLDFAST__V1__NODE_CHANGE__NODE_CHILDREN_CHANGED: return HF_CHILDREN_CHANGED;
	default: return HF_CHANGED;
	}
}

void watch_event(struct sess *s, const Holdfast__V1__SessionEvent *m)
{
	LIST_FOR_EACH(it, &s->watches) {
		struct watch *w = CONTAINER_OF(it, struct watch, node);
		if (w->name != m->watch || w->observe)
			continue;
		if (is_arming(s, w)) {
			w->fired_early = true;
			w->early_change = change_of(m->change);
			w->early_code = m->change == DENIED ? HF_DENIED : HF_OK;
			w->early_revision = m->revision;
		} else if (w->follow) {
			arm(s, w); /* and learns why not, if it may not */
		} else {
			fire(s, w, m->change == DENIED ? HF_DENIED : HF_OK, change_of(m->change), m->revision);
		}
		return;
	}
}

void watches_stream_up(struct sess *s)
{
	LIST_FOR_EACH(it, &s->watches) {
		struct watch *w = CONTAINER_OF(it, struct watch, node);
		if (!is_arming(s, w))
			arm(s, w);
	}
}

void watches_end(struct sess *s)
{
	enum hf_code code = s->state == HF_EXPIRED ? HF_SESSION_LOST : HF_CANCELED;
	LIST_FOR_EACH_SAFE(it, next, &s->watches) {
		struct watch *w = CONTAINER_OF(it, struct watch, node);
		disarm(s, w);
		refuse(s, w, code, slice_of_str("the session is over"));
	}
}
