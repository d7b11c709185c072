/* null_node.c: a node without a thread: what it was handed waits until null_node_settle() answers. */
#include "base/mem.h"
#include "base/pbw.h"
#include "null_node.h"

static uint64_t next_tag = 1;
static struct list held = { &held, &held }; /* struct submit_call.link */
static struct submit_stream *stream;
static struct buf output; /* the stream's, not given yet */

/* What passed the services' checks must unpack: the core asserts as much. */
static void must_unpack(enum method_id method, struct slice bytes)
{
	ProtobufCMessage *m = protobuf_c_message_unpack(method_by_id(method)->request, NULL, bytes.len, bytes.ptr);
	ASSERT(m);
	protobuf_c_message_free_unpacked(m, NULL);
}

static void answer(struct submit_call *c, enum err e)
{
	struct buf reply = { .ptr = NULL }, details = { .ptr = NULL };
	if (!e)
		pbw_u64(&reply, 3, 7);
	else
		buf_append_byte(&details, (uint8_t)e);
	c->done(c, e, &reply, &details);
	buf_free(&reply);
	buf_free(&details);
}

enum err node_submit(struct node *n, struct submit_call *c)
{
	(void)n;
	c->tag = next_tag++;
	must_unpack(c->method, c->bytes);
	if (c->tag % 11 == 0)
		return ERR_OVERLOADED;
	list_push_back(&held, &c->link);
	return ERR_OK;
}

bool node_refuses(struct node *n, enum method_id method, struct slice request)
{
	(void)n;
	return method == METHOD_KV_PUT && request.len % 13 == 0;
}

void node_cancel(struct node *n, uint64_t tag)
{
	(void)n;
	(void)tag;
}

void null_node_settle(bool end)
{
	struct list *it;
	while (!list_empty(&held)) {
		struct submit_call *c;
		it = next_tag % 2 ? held.next : held.prev;
		list_remove(it);
		c = CONTAINER_OF(it, struct submit_call, link);
		answer(c, c->tag % 7 ? ERR_OK : ERR_NO_SPACE);
	}
	if (stream && output.len)
		stream->output(stream, &output, false, ERR_OK);
	buf_free(&output);
	if (stream && end) {
		struct submit_stream *s = stream;
		struct buf none = { .ptr = NULL };
		stream = NULL;
		s->output(s, &none, true, ERR_OK);
	}
}

enum err node_stream_open(struct node *n, struct submit_stream *s, struct slice bytes)
{
	(void)n;
	s->tag = next_tag++;
	if (s->method == METHOD_ELECTION_OBSERVE)
		must_unpack(s->method, bytes);
	if (s->tag % 5 == 0)
		return ERR_STOPPED;
	ASSERT(!stream);
	stream = s;
	return ERR_OK;
}

enum err node_stream_message(struct node *n, uint64_t tag, struct slice bytes)
{
	(void)n;
	if (!stream || stream->tag != tag)
		return ERR_OK;
	must_unpack(stream->method, bytes);
	if (bytes.len % 13 == 12)
		return ERR_OVERLOADED;
	buf_append(&output, "\0\0\0\0", 4);
	return ERR_OK;
}

void node_stream_writable(struct node *n, uint64_t tag)
{
	(void)n;
	(void)tag;
}

void node_stream_close(struct node *n, uint64_t tag)
{
	(void)n;
	(void)tag;
}

void node_health(struct node *n, struct node_health *ret)
{
	(void)n;
	*ret = (struct node_health){ .leader_id = 1 };
}

const char *node_etcd_version(const struct node *n)
{
	(void)n;
	return "3.5.0";
}
