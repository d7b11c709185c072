/* auth.c: the token that calls carry while the cell asks for users. It is fetched before the first call goes out, and again when the cell does not know it any more. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "errors.h"
#include "etcd/rpc.pb-c.h"
#include "lib.h"

enum { PATIENCE_MS = 5000 };

static bool is(struct slice text, enum err e)
{
	return slice_eq(text, slice_of_str(err_text(e)));
}

static void set_token(struct hf_client *c, const char *token)
{
	free(c->token);
	c->token = token ? strcpy(mem_alloc(strlen(token) + 1), token) : NULL;
}

static void on_message(void *owner, struct io *io, struct slice bytes)
{
	const ProtobufCMessageDescriptor *d = &etcdserverpb__authenticate_response__descriptor;
	Etcdserverpb__AuthenticateResponse *r = NULL;
	(void)io;
	if (pb_check(d, bytes, 8) == PB_CHECK_OK)
		r = (Etcdserverpb__AuthenticateResponse *)protobuf_c_message_unpack(d, NULL, bytes.len, bytes.ptr);
	if (!r)
		return;
	set_token(owner, r->token);
	protobuf_c_message_free_unpacked(&r->base, NULL);
}

static void on_end(void *owner, struct io *io, int status, struct slice text, struct slice details)
{
	struct hf_client *c = owner;
	(void)io, (void)details;
	c->asking = false;
	if (is(text, ERR_AUTH_NOT_ENABLED))
		set_token(c, "");
	if (c->token)
		io_unsent_begin(c);
	else if (is(text, ERR_AUTH_FAILED))
		io_unsent_end(c, STATUS_UNAUTHENTICATED, text);
	else
		io_unsent_end(c, status == STATUS_OK ? STATUS_UNAVAILABLE : status == STATUS_DEADLINE_EXCEEDED ? STATUS_UNAVAILABLE : status, text);
}

static const struct io_class class = { on_message, on_end };

void auth_ask(struct hf_client *c, uint32_t endpoint)
{
	Etcdserverpb__AuthenticateRequest r = ETCDSERVERPB__AUTHENTICATE_REQUEST__INIT;
	struct io_start start = { .endpoint = endpoint, .method = METHOD_AUTH_AUTHENTICATE, .deadline_ms = boot_ms() + PATIENCE_MS, .open_to_all = true };
	struct buf b = { .ptr = NULL };
	if (c->asking)
		return;
	c->asking = true;
	r.name = c->user;
	r.password = c->password;
	buf_reserve(&b, protobuf_c_message_get_packed_size(&r.base) + 1);
	b.len = protobuf_c_message_pack(&r.base, b.ptr);
	io_send(io_new(c, &start, &class, c), &b);
}

bool auth_ran_out(struct hf_client *c, int status, struct slice text)
{
	if (!c->user || !(status == STATUS_UNAUTHENTICATED || is(text, ERR_AUTH_INVALID_TOKEN) || is(text, ERR_AUTH_OLD_REVISION) || is(text, ERR_USER_EMPTY)))
		return false;
	set_token(c, NULL);
	return true;
}
