/* watch.c: etcdserverpb.Watch. One stream carries many watches; the core keeps them as cursors (core/watch).
 *
 * A client that has sent all it wants to send still wants its events: half close ends nothing. */
#include "internal.h"

static void watch_start(struct service_call *c)
{
	service_stream_open(c, slice_of(NULL, 0));
}

static bool watch_message(struct service_call *c, struct slice bytes)
{
	enum err e = service_check_form(c, bytes);
	if (e)
		service_stream_fail(c, e);
	else
		service_stream_message(c, bytes);
	return true;
}

static void watch_half_close(struct service_call *c)
{
	(void)c;
}

const struct call_class watch_class = {
	.start = watch_start,
	.message = watch_message,
	.half_close = watch_half_close,
	.cancel = service_stream_cancel,
	.writable = service_stream_writable,
	.end = service_stream_end,
};
