/* frame.c: see frame.h. Short messages are copied together, long ones are handed to gRPC as they are. */
#include "frame.h"

#include <grpc/slice.h>

#include "base/mem.h"
#include "outbox.h"

#define HEADER 4
#define COPY_MAX 4096

struct packer {
	grpc_slice *slices;
	size_t len;
	struct buf run; /* copied bytes that are not in a slice yet */
};

static void end_run(struct packer *p)
{
	if (p->run.len)
		p->slices[p->len++] = rpc_slice_take(&p->run);
}

static void pack_one(struct packer *p, struct outbox_item *item)
{
	uint32_t len = (uint32_t)item->bytes.len;
	uint8_t header[HEADER] = { (uint8_t)len, (uint8_t)(len >> 8), (uint8_t)(len >> 16), (uint8_t)(len >> 24) };
	buf_append(&p->run, header, sizeof(header));
	if (len <= COPY_MAX) {
		buf_append_slice(&p->run, buf_view(&item->bytes));
		return;
	}
	end_run(p);
	p->slices[p->len++] = rpc_slice_take(&item->bytes);
}

grpc_byte_buffer *frame_pack_take(struct list *items)
{
	struct packer p = { .len = 0 };
	grpc_byte_buffer *m;
	size_t messages = 0, bytes = 0;
	LIST_FOR_EACH(n, items) {
		struct outbox_item *item = CONTAINER_OF(n, struct outbox_item, link);
		ASSERT(item->bytes.len <= FRAME_MESSAGE_MAX);
		messages++;
		bytes += HEADER + (item->bytes.len <= COPY_MAX ? item->bytes.len : 0);
	}
	p.slices = mem_alloc((2 * messages + 1) * sizeof(*p.slices));
	buf_reserve(&p.run, bytes);
	LIST_FOR_EACH(n, items)
		pack_one(&p, CONTAINER_OF(n, struct outbox_item, link));
	end_run(&p);
	m = grpc_raw_byte_buffer_create(p.slices, p.len);
	for (size_t i = 0; i < p.len; i++)
		grpc_slice_unref(p.slices[i]);
	free(p.slices);
	buf_free(&p.run);
	outbox_items_free(items);
	return m;
}

bool frame_next(struct slice *rest, struct slice *ret_message)
{
	const uint8_t *at = rest->ptr;
	size_t len;
	if (rest->len < HEADER)
		return false;
	len = (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
	if (len > rest->len - HEADER)
		return false;
	*ret_message = slice_of(at + HEADER, len);
	*rest = slice_of(at + HEADER + len, rest->len - HEADER - len);
	return true;
}
