/* rpc.c: helpers over the gRPC C core; see rpc.h.
 *
 * The library is not built for the thread sanitizer, which so cannot see that a tag that comes out of a queue was put there before: tags are
 * annotated by hand. */
#include "rpc/rpc.h"

#include <dlfcn.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <string.h>

#include "base/mem.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define TAG_GIVEN(tag) __tsan_release(tag)
#define TAG_TAKEN(tag) __tsan_acquire(tag)
#else
#define TAG_GIVEN(tag) ((void)(tag))
#define TAG_TAKEN(tag) ((void)(tag))
#endif

gpr_timespec rpc_in_ms(uint64_t ms)
{
	int64_t bounded = ms > INT64_MAX / 2 ? INT64_MAX / 2 : (int64_t)ms;
	return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(bounded, GPR_TIMESPAN));
}

enum rpc_ran rpc_run(grpc_completion_queue *cq, gpr_timespec deadline)
{
	grpc_event ev = grpc_completion_queue_next(cq, deadline, NULL);
	struct rpc_tag *tag;
	switch (ev.type) {
	case GRPC_QUEUE_SHUTDOWN:
		return RPC_SHUTDOWN;
	case GRPC_QUEUE_TIMEOUT:
		return RPC_TIMEOUT;
	case GRPC_OP_COMPLETE:
		break;
	}
	tag = ev.tag;
	TAG_TAKEN(tag);
	tag->fn(tag, ev.success != 0);
	return RPC_RAN;
}

void rpc_give(struct rpc_tag *tag)
{
	TAG_GIVEN(tag);
}

void rpc_start(grpc_call *call, const grpc_op *ops, size_t len, struct rpc_tag *tag)
{
	grpc_call_error e;
	TAG_GIVEN(tag);
	e = grpc_call_start_batch(call, ops, len, tag, NULL);
	ASSERT(e == GRPC_CALL_OK);
}

grpc_op rpc_op(grpc_op_type type)
{
	grpc_op op;
	memset(&op, 0, sizeof(op));
	op.op = type;
	return op;
}

bool rpc_no_lock_graph(void)
{
	/* absl::SetMutexDeadlockDetectionMode(OnDeadlockCycle::kIgnore) of Debian 12. Looked up at run time: another Abseil calls it otherwise, and does without. */
	void *found = dlsym(RTLD_DEFAULT, "_ZN4absl7debian329SetMutexDeadlockDetectionModeENS0_15OnDeadlockCycleE");
	void (*set_mode)(int mode);
	if (!found)
		return false;
	memcpy(&set_mode, &found, sizeof(set_mode));
	set_mode(/*kIgnore=*/0);
	return true;
}

struct slice rpc_view(const grpc_slice *s)
{
	return slice_of(GRPC_SLICE_START_PTR(*s), GRPC_SLICE_LENGTH(*s));
}

grpc_slice rpc_slice_copy(struct slice s)
{
	return grpc_slice_from_copied_buffer((const char *)s.ptr, s.len);
}

grpc_slice rpc_slice_take(struct buf *b)
{
	struct buf mine = buf_take(b);
	if (!mine.ptr)
		return grpc_empty_slice();
	return grpc_slice_new_with_user_data(mine.ptr, mine.len, free, mine.ptr);
}

grpc_slice rpc_slice_static(const char *text)
{
	return grpc_slice_from_static_string(text);
}

grpc_byte_buffer *rpc_message_of_slice(grpc_slice s)
{
	grpc_byte_buffer *m = grpc_raw_byte_buffer_create(&s, 1);
	grpc_slice_unref(s);
	return m;
}

grpc_byte_buffer *rpc_message_take(struct buf *b)
{
	return rpc_message_of_slice(rpc_slice_take(b));
}

bool rpc_message_view(grpc_byte_buffer *m, struct buf *scratch, struct slice *ret)
{
	grpc_byte_buffer_reader reader;
	grpc_slice *piece;
	struct slice first = slice_of(NULL, 0);
	size_t pieces = 0;
	if (!grpc_byte_buffer_reader_init(&reader, m))
		return false;
	buf_clear(scratch);
	while (grpc_byte_buffer_reader_peek(&reader, &piece)) {
		if (pieces++ == 0) {
			first = rpc_view(piece);
			continue;
		}
		if (pieces == 2)
			buf_append_slice(scratch, first);
		buf_append_slice(scratch, rpc_view(piece));
	}
	grpc_byte_buffer_reader_destroy(&reader);
	*ret = pieces > 1 ? buf_view(scratch) : first;
	return true;
}

bool rpc_metadata_find(const grpc_metadata_array *a, const char *key, struct slice *ret)
{
	struct slice wanted = slice_of_str(key);
	for (size_t i = 0; i < a->count; i++) {
		if (slice_eq(rpc_view(&a->metadata[i].key), wanted)) {
			*ret = rpc_view(&a->metadata[i].value);
			return true;
		}
	}
	return false;
}

/* ---- errors: google.rpc.Status is no message of ours, so the way to the one inside it is walked by hand ---- */

static bool varint(struct slice *s, uint64_t *ret)
{
	*ret = 0;
	for (unsigned shift = 0; shift < 64 && s->len; shift += 7) {
		uint8_t b = *s->ptr;
		*s = slice_of(s->ptr + 1, s->len - 1);
		*ret |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return true;
	}
	return false;
}

/* The first field of that number that is bytes. */
static bool field_bytes(struct slice s, uint64_t number, struct slice *ret)
{
	uint64_t tag, n;
	while (s.len && varint(&s, &tag)) {
		if ((tag & 7) == 0) {
			if (!varint(&s, &n))
				return false;
			continue;
		}
		if ((tag & 7) != 2 || !varint(&s, &n) || n > s.len)
			return false;
		if (tag >> 3 == number) {
			*ret = slice_of(s.ptr, (size_t)n);
			return true;
		}
		s = slice_of(s.ptr + n, s.len - (size_t)n);
	}
	return false;
}

bool rpc_status_detail(struct slice details, struct slice *ret_url, struct slice *ret_value)
{
	struct slice any, url, value;
	if (!field_bytes(details, 3, &any) || !field_bytes(any, 1, &url) || !field_bytes(any, 2, &value))
		return false;
	*ret_url = url;
	*ret_value = value;
	return true;
}
