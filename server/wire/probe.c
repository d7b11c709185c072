/* probe.c: does gRPC come to us? It gets one end of a socket pair as a new connection, sends its settings, reads the preface, and closes: what of that came by. */
#include <grpc/grpc.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "rpc/rpc.h"
#include "wire.h"

#define PATIENCE_MS 2000
#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

struct probe {
	atomic_bool received, sent, closed;
};

static ssize_t on_receive(void *ctx, int fd, struct msghdr *msg)
{
	atomic_store(&((struct probe *)ctx)->received, true);
	return wire_real_recvmsg(fd, msg, 0);
}

static ssize_t on_send(void *ctx, int fd, const struct msghdr *msg)
{
	atomic_store(&((struct probe *)ctx)->sent, true);
	return wire_real_sendmsg(fd, msg, MSG_NOSIGNAL);
}

static void on_shutdown(void *ctx, int fd)
{
	(void)ctx, (void)fd;
}

static void on_close(void *ctx, int fd)
{
	(void)fd;
	atomic_store(&((struct probe *)ctx)->closed, true);
}

/* gRPC works while somebody waits for its events. True: the tag has come. */
static bool work_until(grpc_completion_queue *cq, const atomic_bool *what, const void *tag)
{
	for (int ms = 0; ms < PATIENCE_MS && !(what && atomic_load(what)); ms++) {
		grpc_event ev = grpc_completion_queue_next(cq, rpc_in_ms(1), NULL);
		if (ev.type == GRPC_OP_COMPLETE && ev.tag == tag)
			return true;
	}
	return false;
}

static void speak(struct probe *p, int fds[2])
{
	static const struct wire_ops ops = { .receive = on_receive, .send = on_send, .shutdown = on_shutdown, .close = on_close };
	grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
	grpc_server *server = grpc_server_create(NULL, NULL);
	grpc_server_credentials *creds = grpc_insecure_server_credentials_create();
	grpc_server_register_completion_queue(server, cq, NULL);
	grpc_server_start(server);
	ASSERT(send(fds[1], PREFACE, strlen(PREFACE), MSG_NOSIGNAL) == (ssize_t)strlen(PREFACE));
	ASSERT(wire_attach(fds[0], &ops, p));
	grpc_server_add_channel_from_fd(server, fds[0], creds);
	work_until(cq, &p->sent, NULL);
	work_until(cq, &p->received, NULL);
	close(fds[1]);
	grpc_server_shutdown_and_notify(server, cq, p);
	grpc_server_cancel_all_calls(server);
	work_until(cq, NULL, p);
	grpc_server_destroy(server);
	work_until(cq, &p->closed, NULL);
	grpc_completion_queue_shutdown(cq);
	while (grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type != GRPC_QUEUE_SHUTDOWN)
		;
	grpc_completion_queue_destroy(cq);
	grpc_server_credentials_release(creds);
}

static bool works;

static void find_out(void)
{
	static struct probe p; /* should it never be closed, it is still there */
	int fds[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
		return;
	grpc_init();
	speak(&p, fds);
	grpc_shutdown_blocking();
	works = atomic_load(&p.sent) && atomic_load(&p.received) && atomic_load(&p.closed);
}

bool wire_works(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, find_out);
	return works;
}
