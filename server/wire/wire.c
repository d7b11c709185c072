/* wire.c: the table of attached descriptors, and the four functions.
 *
 *   (W1) an entry is made before gRPC has the descriptor and taken out before it is closed: whoever gets the number next finds none, and whoever rightly uses
 *        a descriptor finds its own. No lock is needed for that.
 *   (W2) what libc does is asked of whoever defines the function after us (RTLD_NEXT), so that preloaded libraries and sanitizers still see each call.
 *   (W3) pages of the table are never freed.
 *   (W4) who does not own the descriptor takes a reference to its entry under one of the locks, and under it an entry is taken out as well. */
#include "wire.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"

enum { PAGE_LEN = 4096, PAGES = 1024, LOCKS = 64 };

#define HOOK __attribute__((used, visibility("default")))

struct wire {
	const struct wire_ops *ops;
	void *ctx;
	atomic_uint refs;
};

typedef _Atomic(struct wire *) wire_slot;

static _Atomic(wire_slot *) pages[PAGES];
static pthread_mutex_t locks[LOCKS] = { [0 ... LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER }; /* (W4) by descriptor */

/* ---- the table ---- */

static wire_slot *slot_of(int fd, bool make)
{
	size_t at = (size_t)fd / PAGE_LEN;
	wire_slot *page, *none = NULL;
	if (fd < 0 || at >= PAGES)
		return NULL;
	page = atomic_load_explicit(&pages[at], memory_order_acquire);
	if (!page && make) {
		page = mem_zalloc(PAGE_LEN * sizeof(*page));
		if (!atomic_compare_exchange_strong(&pages[at], &none, page)) {
			free(page);
			page = none;
		}
	}
	return page ? page + (size_t)fd % PAGE_LEN : NULL;
}

static struct wire *find(int fd)
{
	wire_slot *slot = slot_of(fd, false);
	return slot ? atomic_load_explicit(slot, memory_order_acquire) : NULL;
}

static struct wire *take_out(int fd)
{
	struct wire *w = find(fd);
	if (!w)
		return NULL;
	pthread_mutex_lock(&locks[fd % LOCKS]);
	atomic_store(slot_of(fd, false), NULL);
	pthread_mutex_unlock(&locks[fd % LOCKS]);
	return w;
}

static void unref(struct wire *w)
{
	if (atomic_fetch_sub(&w->refs, 1) != 1)
		return;
	if (w->ops->free)
		w->ops->free(w->ctx);
	free(w);
}

static bool put(int fd, struct wire *w)
{
	wire_slot *slot = slot_of(fd, true);
	if (!slot)
		return false;
	ASSERT(atomic_exchange(slot, w) == NULL); /* (W1) */
	return true;
}

bool wire_attach(int fd, const struct wire_ops *ops, void *ctx)
{
	struct wire *w = mem_alloc(sizeof(*w));
	*w = (struct wire){ ops, ctx, 1 };
	if (put(fd, w))
		return true;
	free(w);
	return false;
}

bool wire_move(int from, int to)
{
	struct wire *w = find(from);
	if (!w)
		return true;
	if (!put(to, w))
		return false;
	take_out(from);
	return true;
}

struct wire *wire_cork(int fd)
{
	struct wire *w = find(fd);
	if (!w)
		return NULL;
	pthread_mutex_lock(&locks[fd % LOCKS]);
	w = find(fd);
	if (w)
		atomic_fetch_add(&w->refs, 1);
	pthread_mutex_unlock(&locks[fd % LOCKS]);
	if (w && w->ops->cork)
		w->ops->cork(w->ctx);
	return w;
}

void wire_uncork(struct wire *w)
{
	if (w->ops->cork)
		w->ops->uncork(w->ctx);
	unref(w);
}

bool wire_is_attached(int fd)
{
	return find(fd) != NULL;
}

/* ---- libc's ---- */

/* Asked for anew by each thread that comes before the first has its answer: it is the same. */
static void *next_of(_Atomic(void *) *known, const char *name)
{
	void *f = atomic_load_explicit(known, memory_order_relaxed);
	if (!f) {
		f = dlsym(RTLD_NEXT, name);
		ASSERT(f);
		atomic_store_explicit(known, f, memory_order_relaxed);
	}
	return f;
}

#define NEXT(name)                              \
	({                                      \
		static _Atomic(void *) known;   \
		(__typeof__(&name))next_of(&known, #name); \
	})

ssize_t wire_real_recvmsg(int fd, struct msghdr *msg, int flags)
{
	return NEXT(recvmsg)(fd, msg, flags);
}

ssize_t wire_real_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	return NEXT(sendmsg)(fd, msg, flags);
}

int wire_real_shutdown(int fd, int how)
{
	return NEXT(shutdown)(fd, how);
}

/* ---- in libc's place ---- */

/* What is in a socket's queue of errors (timestamps, zero-copy) is not bytes of the connection. */
HOOK ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct wire *w = flags & MSG_ERRQUEUE ? NULL : find(fd);
	return w ? w->ops->receive(w->ctx, fd, msg) : wire_real_recvmsg(fd, msg, flags);
}

HOOK ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct wire *w = find(fd);
	return w ? w->ops->send(w->ctx, fd, msg) : wire_real_sendmsg(fd, msg, flags);
}

HOOK int shutdown(int fd, int how)
{
	struct wire *w = find(fd);
	if (w && how != SHUT_RD)
		w->ops->shutdown(w->ctx, fd);
	return wire_real_shutdown(fd, how);
}

HOOK int close(int fd)
{
	struct wire *w = take_out(fd);
	if (w) {
		w->ops->close(w->ctx, fd);
		unref(w);
	}
	return NEXT(close)(fd);
}
