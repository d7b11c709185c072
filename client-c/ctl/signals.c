/* signals.c: see signals.h. */
#include "signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

/* PR_SET_PDEATHSIG also fires when merely the thread that started us ends, so it gets a signal of its own and is believed only when the parent has changed. */
#define SIGNAL_PARENT (SIGRTMIN + 3)
#define SIGNAL_END (SIGRTMIN + 4)

static struct {
	pthread_t thread;
	sigset_t taken, before;
	void (*wake)(void *);
	void *arg;
	int fd;
	pid_t parent;
	atomic_int first, count, seen;
	atomic_bool child, guarded, ending;
} sig;

static void stop_by(int signo)
{
	int none = 0;
	int n = atomic_fetch_add(&sig.count, 1) + 1;
	atomic_compare_exchange_strong(&sig.first, &none, signo);
	if (n > (atomic_load(&sig.guarded) ? 2 : 1))
		_exit(128 + signo);
	ASSERT(eventfd_write(sig.fd, 1) == 0);
	sig.wake(sig.arg);
}

static void take(int signo)
{
	if (signo == SIGNAL_END)
		return;
	if (signo == SIGNAL_PARENT && getppid() == sig.parent)
		return;
	if (signo == SIGCHLD) {
		atomic_store(&sig.child, true);
		sig.wake(sig.arg);
		return;
	}
	stop_by(signo == SIGNAL_PARENT ? SIGHUP : signo);
}

static void *run(void *unused)
{
	(void)unused;
	while (!atomic_load(&sig.ending)) {
		bool unseen = atomic_load(&sig.seen) < atomic_load(&sig.count);
		const struct timespec second = { .tv_sec = 1 };
		int signo = sigtimedwait(&sig.taken, NULL, unseen ? &second : NULL);
		if (signo > 0)
			take(signo);
		else if (errno == EAGAIN && atomic_load(&sig.seen) < atomic_load(&sig.count) && !atomic_load(&sig.guarded))
			_exit(128 + atomic_load(&sig.first));
	}
	return NULL;
}

void signals_block(void)
{
	static const int taken[] = { SIGINT, SIGTERM, SIGHUP, SIGCHLD };
	struct sigaction hangup;
	sig.parent = getppid();
	sig.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ASSERT(sig.fd >= 0);
	sigemptyset(&sig.taken);
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
		sigaddset(&sig.taken, taken[i]);
	/* nohup has it ignored, and means it. (What is blocked is kept for us even when it is ignored, and COMMAND starts as we did.) */
	if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN)
		sigdelset(&sig.taken, SIGHUP);
	signal(SIGCHLD, SIG_DFL);
	sigaddset(&sig.taken, SIGNAL_PARENT);
	sigaddset(&sig.taken, SIGNAL_END);
	/* A closed pipe is an error of the write, not the end of a process that may hold a lock. */
	signal(SIGPIPE, SIG_IGN);
	pthread_sigmask(SIG_BLOCK, &sig.taken, &sig.before);
}

void signals_start(void (*wake)(void *arg), void *arg)
{
	sig.wake = wake;
	sig.arg = arg;
	ASSERT(pthread_create(&sig.thread, NULL, run, NULL) == 0);
}

void signals_stop(void)
{
	atomic_store(&sig.ending, true);
	pthread_kill(sig.thread, SIGNAL_END);
	pthread_join(sig.thread, NULL);
	close(sig.fd);
}

int signals_stopped(void)
{
	atomic_store(&sig.seen, atomic_load(&sig.count));
	return atomic_load(&sig.first);
}

int signals_stop_count(void)
{
	atomic_store(&sig.seen, atomic_load(&sig.count));
	return atomic_load(&sig.count);
}

bool signals_child_changed(void)
{
	return atomic_exchange(&sig.child, false);
}

int signals_fd(void)
{
	return sig.fd;
}

void signals_guard(void)
{
	atomic_store(&sig.guarded, true);
}

void signals_follow_parent(void)
{
	prctl(PR_SET_PDEATHSIG, SIGNAL_PARENT);
	/* It may have died before. */
	if (getppid() != sig.parent)
		kill(getpid(), SIGNAL_PARENT);
}

void signals_reset_in_child(void)
{
	signal(SIGPIPE, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigprocmask(SIG_SETMASK, &sig.before, NULL);
}
