/* tls_drain.c: one epoll set, each socket in it watched for room, once.
 *
 *   (E1) an item is told to be over behind the batch of events in which it was dropped: the batch may still name it. */
#include "tls_drain.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"

enum { EVENTS_MAX = 64 };

struct tls_drain {
	struct tls_drain_callbacks cb;
	pthread_t thread;
	int epoll_fd, wake_fd;
	pthread_mutex_t mu;
	/* guarded by mu */
	struct list dropped;
	bool stopped;
};

static bool bury(struct tls_drain *d)
{
	struct list *it;
	bool go_on;
	do {
		pthread_mutex_lock(&d->mu);
		it = list_pop_front(&d->dropped);
		go_on = !d->stopped;
		pthread_mutex_unlock(&d->mu);
		if (it)
			d->cb.over(CONTAINER_OF(it, struct tls_drained, link));
	} while (it);
	return go_on;
}

static void *run(void *arg)
{
	struct tls_drain *d = arg;
	struct epoll_event events[EVENTS_MAX];
	do {
		int n = epoll_wait(d->epoll_fd, events, EVENTS_MAX, -1);
		for (int i = 0; i < n; i++) {
			uint64_t count;
			if (events[i].data.ptr)
				d->cb.room(events[i].data.ptr);
			else if (read(d->wake_fd, &count, sizeof(count)) < 0)
				continue;
		}
	} while (bury(d));
	return NULL;
}

static void wake(struct tls_drain *d)
{
	uint64_t one = 1;
	ASSERT(write(d->wake_fd, &one, sizeof(one)) == sizeof(one));
}

static bool control(struct tls_drain *d, int what, struct tls_drained *item, int fd)
{
	struct epoll_event ev = { .events = EPOLLOUT | EPOLLONESHOT, .data.ptr = item };
	return epoll_ctl(d->epoll_fd, what, fd, &ev) == 0;
}

bool tls_drain_watch(struct tls_drain *d, struct tls_drained *item, int fd)
{
	return control(d, EPOLL_CTL_ADD, item, fd);
}

void tls_drain_again(struct tls_drain *d, struct tls_drained *item, int fd)
{
	ASSERT(control(d, EPOLL_CTL_MOD, item, fd));
}

void tls_drain_done(struct tls_drain *d, int fd)
{
	ASSERT(control(d, EPOLL_CTL_DEL, NULL, fd));
}

bool tls_drain_drop(struct tls_drain *d, struct tls_drained *item, int fd)
{
	bool stopped;
	tls_drain_done(d, fd);
	pthread_mutex_lock(&d->mu);
	stopped = d->stopped;
	if (!stopped)
		list_push_back(&d->dropped, &item->link);
	pthread_mutex_unlock(&d->mu);
	if (!stopped)
		wake(d);
	return !stopped;
}

struct tls_drain *tls_drain_new(const struct tls_drain_callbacks *cb)
{
	struct tls_drain *d = mem_zalloc(sizeof(*d));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL };
	d->cb = *cb;
	pthread_mutex_init(&d->mu, NULL);
	list_init(&d->dropped);
	d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ASSERT(d->epoll_fd >= 0 && d->wake_fd >= 0); /* made once, at start */
	ASSERT(epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, d->wake_fd, &ev) == 0);
	ASSERT(pthread_create(&d->thread, NULL, run, d) == 0);
	pthread_setname_np(d->thread, "tls-drain");
	return d;
}

void tls_drain_stop(struct tls_drain *d)
{
	pthread_mutex_lock(&d->mu);
	d->stopped = true;
	pthread_mutex_unlock(&d->mu);
	wake(d);
	pthread_join(d->thread, NULL);
}

void tls_drain_free(struct tls_drain *d)
{
	close(d->epoll_fd);
	close(d->wake_fd);
	pthread_mutex_destroy(&d->mu);
	free(d);
}
