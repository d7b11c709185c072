/* mini_cache.h: somebody who caches, so that writes of that wait at the gate. */
#ifndef HOLDFAST_TESTS_SUPPORT_MINI_CACHE_H
#define HOLDFAST_TESTS_SUPPORT_MINI_CACHE_H

#include "base/pbw.h"
#include "core/wire.h"
#include "holdfast/v1.pb-c.h"
#include "support/mini_answer.h"

static inline void mini_cache_output(void *ctx, size_t i, struct core_output *o)
{
	struct slice bytes = buf_view(&o->messages);

	(void)i;
	if (bytes.len > 4 && *(lease_id *)ctx == 0) /* a length in front, then SessionOpened */
		*(lease_id *)ctx = (lease_id)wire_find_u64(wire_find_bytes(slice_of(bytes.ptr + 4, bytes.len - 4), 1), 1, 0);
}

/* A session at replica i that has `path` in its cache, and acknowledges nothing. */
static inline void mini_cache(struct mini_cell *m, size_t i, const char *path)
{
	enum { STREAM = 1, OPEN = 1 };
	Holdfast__V1__NodesGetRequest get = HOLDFAST__V1__NODES_GET_REQUEST__INIT;
	uint8_t secret[32] = { 1 };
	struct buf open = { 0 }, message = { 0 };
	lease_id session = 0;

	pbw_i64(&open, 1, 60);
	pbw_bytes_always(&open, 2, slice_of_str("/"));
	pbw_bytes_always(&message, OPEN, buf_view(&open));
	mini_on_output(m, mini_cache_output, &session);
	mini_stream(m, i, EVENT_STREAM_OPEN, STREAM, METHOD_SESSION_CONNECT, slice_of(secret, sizeof secret));
	mini_stream(m, i, EVENT_STREAM_MESSAGE, STREAM, METHOD_SESSION_CONNECT, buf_view(&message));
	mini_run(m, 200);
	mini_on_output(m, NULL, NULL);
	ck_assert_int_ne(session, 0);
	get.path = (char *)(uintptr_t)path;
	get.session = session;
	get.cache = true;
	OK(m, mini_request(m, i, METHOD_NODES_GET, &get.base));
	buf_free(&open);
	buf_free(&message);
}

#endif
