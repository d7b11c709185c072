/* session.c: holdfast.v1.Session. One stream a client; the core keeps it (core/client_stream.c), and judges its messages.
 *
 * The core draws no secrets, since its choices can be replayed: the one for the session that may be opened comes from here.
 * A client that has sent all it wants to send is still told what happens to it: half close ends nothing. */
#include <errno.h>
#include <sys/random.h>

#include "core/session/session.h"
#include "internal.h"

static bool draw_secret(uint8_t secret[SESSION_SECRET_LEN])
{
	ssize_t n;
	do
		n = getrandom(secret, SESSION_SECRET_LEN, 0);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)SESSION_SECRET_LEN;
}

static void session_start(struct service_call *c)
{
	uint8_t secret[SESSION_SECRET_LEN];
	if (draw_secret(secret))
		service_stream_open(c, slice_of(secret, sizeof(secret)));
	else
		service_finish(c, ERR_IO, NULL);
}

static bool session_message(struct service_call *c, struct slice bytes)
{
	enum err e = service_check_form(c, bytes);
	if (e)
		service_stream_fail(c, e);
	else
		service_stream_message(c, bytes);
	return true;
}

static void session_half_close(struct service_call *c)
{
	(void)c;
}

const struct call_class session_class = {
	.start = session_start,
	.message = session_message,
	.half_close = session_half_close,
	.cancel = service_stream_cancel,
	.writable = service_stream_writable,
	.end = service_stream_end,
};
