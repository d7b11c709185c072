/* peers_in.c: streams that other replicas open to us: what comes in goes to the callback.
 *
 * The server has no port of its own: the acceptor hands it descriptors. PEERS_METHOD is served, two questions are answered at once, and any other call is UNIMPLEMENTED.
 *
 *   (S1) one stream a member, and one for each that it takes us for, as an earlier member may have had our address: a new one takes the place of an old one,
 *        whose peer has most likely gone without a word; that is no loss. Two of a kind would take each other's place for ever.
 *   (S2) a stream holds one gRPC message at most: the next is asked for when the callback has had this one, so a flood stays in the sender.
 *   (S3) what a peer sends is not believed: bytes that are no frame end its stream. Whether a message is sound, and whose, is for the core to say. */
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <stdlib.h>

#include "base/mem.h"
#include "frame.h"
#include "internal.h"
#include "log/log.h"

#define STREAMS_MAX 64
#define SCRATCH_KEEP (1U << 20)

struct in_request {
	struct peers *peers;
	struct rpc_tag tag;
	grpc_call *call;
	grpc_call_details details;
	grpc_metadata_array metadata;
};

struct in_stream {
	struct list node; /* peers->streams_in; on its own once ended */
	struct peers *peers;
	member_id member, meant_for; /* 0: it does not say */
	grpc_call *call;
	size_t pending; /* tags */
	bool cancelled_by_us, replaced;
	struct rpc_tag greeted, received, closed;
	grpc_byte_buffer *message;
	int cancelled;
};

struct refusal {
	struct peers *peers;
	struct rpc_tag tag;
	grpc_call *call;
	int cancelled;
	grpc_byte_buffer *message; /* NULL: none */
};

/* ---- calls that are answered at once ---- */

static void on_refused(struct rpc_tag *tag, bool ok)
{
	struct refusal *r = CONTAINER_OF(tag, struct refusal, tag);
	struct peers *p = r->peers;
	(void)ok;
	peers_enter(p);
	p->ops--;
	grpc_call_unref(r->call);
	if (r->message)
		grpc_byte_buffer_destroy(r->message);
	free(r);
	peers_leave(p);
}

static void refuse(struct peers *p, grpc_call *call, grpc_status_code status, const char *text)
{
	struct refusal *r = mem_zalloc(sizeof(*r));
	grpc_slice details = rpc_slice_static(text);
	grpc_op ops[3] = { { .op = GRPC_OP_SEND_INITIAL_METADATA }, { .op = GRPC_OP_SEND_STATUS_FROM_SERVER }, { .op = GRPC_OP_RECV_CLOSE_ON_SERVER } };
	ops[1].data.send_status_from_server.status = status;
	ops[1].data.send_status_from_server.status_details = &details;
	ops[2].data.recv_close_on_server.cancelled = &r->cancelled;
	r->peers = p;
	r->call = call;
	r->tag.fn = on_refused;
	p->ops++;
	rpc_start(call, ops, 3, &r->tag);
}

/* What a replica that joins wants to know. Its request has nothing in it, and is not read. */
static void tell_info(struct peers *p, grpc_call *call)
{
	struct refusal *r;
	grpc_op ops[4] = { { .op = GRPC_OP_SEND_INITIAL_METADATA }, { .op = GRPC_OP_SEND_MESSAGE }, { .op = GRPC_OP_SEND_STATUS_FROM_SERVER },
			   { .op = GRPC_OP_RECV_CLOSE_ON_SERVER } };
	struct buf info;
	pthread_mutex_lock(&p->mu);
	info = buf_copy_of(buf_view(&p->info));
	pthread_mutex_unlock(&p->mu);
	if (!info.len) {
		refuse(p, call, GRPC_STATUS_UNAVAILABLE, "not ready yet");
		return;
	}
	r = mem_zalloc(sizeof(*r));
	r->peers = p;
	r->call = call;
	r->tag.fn = on_refused;
	r->message = rpc_message_take(&info);
	ops[1].data.send_message.send_message = r->message;
	ops[2].data.send_status_from_server.status = GRPC_STATUS_OK;
	ops[3].data.recv_close_on_server.cancelled = &r->cancelled;
	p->ops++;
	rpc_start(call, ops, 4, &r->tag);
}

/* ---- streams ---- */

static void stream_op(struct in_stream *s, const grpc_op *op, struct rpc_tag *tag)
{
	s->pending++;
	s->peers->ops++;
	rpc_start(s->call, op, 1, tag);
}

static void stream_tag_back(struct in_stream *s)
{
	s->peers->ops--;
	if (--s->pending)
		return;
	ASSERT(list_empty(&s->node) && !s->message);
	grpc_call_unref(s->call);
	free(s);
}

static void stream_cancel(struct in_stream *s)
{
	if (!s->cancelled_by_us)
		grpc_call_cancel(s->call, NULL);
	s->cancelled_by_us = true;
}

static void receive(struct in_stream *s)
{
	grpc_op op = { .op = GRPC_OP_RECV_MESSAGE };
	op.data.recv_message.recv_message = &s->message;
	stream_op(s, &op, &s->received);
}

/* False: not a frame. */
static bool deliver(struct peers *p, grpc_byte_buffer *m)
{
	struct slice rest, message;
	if (!rpc_message_view(m, &p->scratch, &rest))
		return false;
	while (!p->ending && frame_next(&rest, &message))
		p->cb.message(p->cb.ctx, message); /* dropped when the node has no room */
	return p->ending || rest.len == 0;
}

static void on_received(struct rpc_tag *tag, bool ok)
{
	struct in_stream *s = CONTAINER_OF(tag, struct in_stream, received);
	struct peers *p = s->peers;
	grpc_byte_buffer *m;
	bool fine;
	peers_enter(p);
	m = s->message;
	fine = ok && m && !s->cancelled_by_us;
	s->message = NULL;
	if (fine && !deliver(p, m)) {
		log_warn("a peer's stream does not hold frames, closed it", LOG_ID("member", s->member));
		fine = false;
	}
	/* One that ends is no failure but when it breaks, which `closed` tells. */
	if (m) {
		link_received(p, s->member, grpc_byte_buffer_length(m), !fine && !s->cancelled_by_us);
		grpc_byte_buffer_destroy(m);
	}
	if (p->scratch.cap > SCRATCH_KEEP)
		buf_free(&p->scratch);
	if (fine)
		receive(s);
	else
		stream_cancel(s); /* its peer has ended it, or else this does */
	stream_tag_back(s);
	peers_leave(p);
}

static void on_greeted(struct rpc_tag *tag, bool ok)
{
	struct in_stream *s = CONTAINER_OF(tag, struct in_stream, greeted);
	struct peers *p = s->peers;
	(void)ok; /* closed tells it all */
	peers_enter(p);
	stream_tag_back(s);
	peers_leave(p);
}

bool peers_in_has(const struct peers *p, member_id member)
{
	LIST_FOR_EACH(n, &p->streams_in) {
		struct in_stream *s = CONTAINER_OF(n, struct in_stream, node);
		if (s->member == member && !s->cancelled_by_us)
			return true;
	}
	return false;
}

static void on_closed(struct rpc_tag *tag, bool ok)
{
	struct in_stream *s = CONTAINER_OF(tag, struct in_stream, closed);
	struct peers *p = s->peers;
	(void)ok;
	peers_enter(p);
	list_remove(&s->node);
	p->streams_in_len--;
	stream_cancel(s); /* also wakes a receive that is still under way */
	if (!s->replaced && !p->ending) {
		link_received(p, s->member, 0, true);
		if (!peers_in_has(p, s->member))
			link_stream_in_broke(p, s->member);
	}
	stream_tag_back(s);
	peers_leave(p);
}

static void replace(struct peers *p, member_id member, member_id meant_for)
{
	LIST_FOR_EACH(n, &p->streams_in) {
		struct in_stream *s = CONTAINER_OF(n, struct in_stream, node);
		if (s->member == member && s->meant_for == meant_for && !s->cancelled_by_us) {
			s->replaced = true;
			stream_cancel(s);
		}
	}
}

static void stream_new(struct peers *p, grpc_call *call, member_id member, member_id meant_for, struct slice urls)
{
	struct in_stream *s = mem_zalloc(sizeof(*s));
	grpc_metadata self = { .key = rpc_slice_static(PEERS_MEMBER_KEY), .value = rpc_slice_static(p->self_text) };
	grpc_op greet = { .op = GRPC_OP_SEND_INITIAL_METADATA }, end = { .op = GRPC_OP_RECV_CLOSE_ON_SERVER };
	replace(p, member, meant_for);
	s->peers = p;
	s->member = member;
	s->meant_for = meant_for;
	s->call = call;
	s->greeted.fn = on_greeted;
	s->received.fn = on_received;
	s->closed.fn = on_closed;
	list_push_back(&p->streams_in, &s->node);
	p->streams_in_len++;
	greet.data.send_initial_metadata.count = 1;
	greet.data.send_initial_metadata.metadata = &self;
	end.data.recv_close_on_server.cancelled = &s->cancelled;
	stream_op(s, &greet, &s->greeted);
	stream_op(s, &end, &s->closed);
	receive(s);
	link_stream_in_opened(p, member, urls);
}

/* ---- calls that come in ---- */

static bool parse_member(struct slice text, member_id *ret)
{
	uint64_t v = 0;
	if (text.len == 0 || text.len > 20)
		return false;
	for (size_t i = 0; i < text.len; i++) {
		if (text.ptr[i] < '0' || text.ptr[i] > '9' || __builtin_mul_overflow(v, 10U, &v) || __builtin_add_overflow(v, (uint64_t)(text.ptr[i] - '0'), &v))
			return false;
	}
	*ret = v;
	return true;
}

static void request_clear(struct in_request *r)
{
	grpc_call_details_destroy(&r->details);
	grpc_metadata_array_destroy(&r->metadata);
}

static void request_arm(struct in_request *r)
{
	struct peers *p = r->peers;
	grpc_call_error e;
	r->call = NULL;
	grpc_call_details_init(&r->details);
	grpc_metadata_array_init(&r->metadata);
	p->ops++;
	rpc_give(&r->tag);
	e = grpc_server_request_call(p->server, &r->call, &r->details, &r->metadata, p->cq, p->cq, &r->tag);
	ASSERT(e == GRPC_CALL_OK);
}

static void serve(struct peers *p, struct in_request *r)
{
	struct slice text, urls = { .ptr = NULL }, meant = { .ptr = NULL };
	member_id member, meant_for = 0;
	rpc_metadata_find(&r->metadata, PEERS_URLS_KEY, &urls);
	rpc_metadata_find(&r->metadata, PEERS_MEANT_KEY, &meant);
	if (slice_eq(rpc_view(&r->details.method), slice_of_str(PEERS_INFO_METHOD)))
		tell_info(p, r->call);
	else if (slice_eq(rpc_view(&r->details.method), slice_of_str(PEERS_PROBE_METHOD)))
		refuse(p, r->call, GRPC_STATUS_OK, "");
	else if (!slice_eq(rpc_view(&r->details.method), slice_of_str(PEERS_METHOD)))
		refuse(p, r->call, GRPC_STATUS_UNIMPLEMENTED, "no such method for peers");
	else if (!rpc_metadata_find(&r->metadata, PEERS_MEMBER_KEY, &text) || !parse_member(text, &member))
		refuse(p, r->call, GRPC_STATUS_INVALID_ARGUMENT, "a peer must name itself");
	else if (meant.len && !parse_member(meant, &meant_for))
		refuse(p, r->call, GRPC_STATUS_INVALID_ARGUMENT, "a stream is meant for a member");
	else if (p->streams_in_len >= STREAMS_MAX)
		refuse(p, r->call, GRPC_STATUS_RESOURCE_EXHAUSTED, "too many streams of peers");
	else
		stream_new(p, r->call, member, meant_for, urls);
	request_clear(r);
	request_arm(r);
}

static void on_request(struct rpc_tag *tag, bool ok)
{
	struct in_request *r = CONTAINER_OF(tag, struct in_request, tag);
	struct peers *p = r->peers;
	peers_enter(p);
	p->ops--;
	if (ok) {
		serve(p, r);
	} else { /* the server is shut down */
		request_clear(r);
		free(r);
		p->request = NULL;
	}
	peers_leave(p);
}

/* ---- the server ---- */

static grpc_arg arg(char *key, int value)
{
	return (grpc_arg){ .type = GRPC_ARG_INTEGER, .key = key, .value.integer = value };
}

void peers_in_start(struct peers *p)
{
	grpc_arg args[] = {
		arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int)FRAME_MAX),
		arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, 4),
		arg(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 10000), /* a connection without a stream */
		arg(GRPC_ARG_KEEPALIVE_TIME_MS, PEERS_KEEPALIVE_MS),
		arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, PEERS_KEEPALIVE_TIMEOUT_MS),
		arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
		arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, PEERS_KEEPALIVE_MS / 4), /* we send nothing: all pings are without data */
		arg(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0),
		arg(GRPC_ARG_ENABLE_CHANNELZ, 0),
	};
	grpc_channel_args all = { .num_args = sizeof(args) / sizeof(args[0]), .args = args };
	struct in_request *r = mem_zalloc(sizeof(*r));
	list_init(&p->streams_in);
	p->server = grpc_server_create(&all, NULL);
	p->server_creds = grpc_insecure_server_credentials_create();
	grpc_server_register_completion_queue(p->server, p->cq, NULL);
	grpc_server_start(p->server);
	r->peers = p;
	r->tag.fn = on_request;
	p->request = r;
	request_arm(r);
}

void peers_in_adopt(void *peers, int fd, struct identity *who)
{
	struct peers *p = peers;
	log_debug("a peer connects", LOG_STR("address", who->address));
	identity_unref(who);
	grpc_server_add_channel_from_fd(p->server, fd, p->server_creds);
}

static void on_shutdown(struct rpc_tag *tag, bool ok)
{
	struct peers *p = CONTAINER_OF(tag, struct peers, shutdown_tag);
	(void)ok;
	peers_enter(p);
	p->ops--;
	peers_leave(p);
}

/* The acceptor has stopped: no connection is added any more. */
void peers_in_stop(struct peers *p)
{
	p->shutdown_tag.fn = on_shutdown;
	p->ops++;
	rpc_give(&p->shutdown_tag);
	grpc_server_shutdown_and_notify(p->server, p->cq, &p->shutdown_tag);
	grpc_server_cancel_all_calls(p->server);
}

void peers_in_free(struct peers *p)
{
	ASSERT(!p->request && list_empty(&p->streams_in));
	grpc_server_destroy(p->server);
	grpc_server_credentials_release(p->server_creds);
	buf_free(&p->scratch);
}
