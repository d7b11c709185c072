/* supervise.c: see supervise.h.
 *
 * Ready is a replica that serves: it knows a leader and has caught up. One that waits for the others of its cell is not, and says so; it is alive all the
 * same, so the watchdog hears from it as long as the core's thread takes its turns. */
#include "supervise.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "log/log.h"
#include "node/node.h"
#include "notify.h"

#define STARTING_MS 50  /* between looks until it serves */
#define ALIVE_MS 10000  /* a core that has not had a turn for so long is stuck; a disk that is slow is not its business */

struct watch {
	const struct supervise_config *config;
	uint64_t watchdog_ms; /* 0: none */
	uint64_t next_dog_ms;
	bool ready, stuck;
};

/* The lines that etcd writes at this moment, since there are supervisors that look for them. */
static void tell_ready(const struct supervise_config *c)
{
	char minor[16];
	snprintf(minor, sizeof(minor), "%.*s", (int)(strrchr(c->etcd_version, '.') - c->etcd_version), c->etcd_version);
	log_info("published local member to cluster through raft", LOG_STR("name", c->name), LOG_ID("member", c->member), LOG_ID("cell", c->cell));
	log_info("enabled capabilities for version", LOG_STR("version", minor));
	log_info("ready to serve client requests", LOG_STR("name", c->name), LOG_STR("address", c->address), LOG_STR("data_dir", c->data_dir),
		 LOG_STR("version", c->version));
	notify_send("READY=1\nSTATUS=serving");
}

static void look(struct watch *w, uint64_t now)
{
	struct node_health h;
	bool alive = node_silence_ms(w->config->node) < ALIVE_MS;
	if (!w->ready) {
		node_health(w->config->node, &h);
		w->ready = h.serving;
		if (w->ready)
			tell_ready(w->config);
	}
	if (w->stuck == alive) {
		w->stuck = !alive;
		if (w->stuck)
			log_error("the core has not had a turn for long, the watchdog is not fed", LOG_U64("ms", node_silence_ms(w->config->node)));
	}
	if (w->watchdog_ms && alive && now >= w->next_dog_ms) {
		notify_send("WATCHDOG=1");
		w->next_dog_ms = now + w->watchdog_ms;
	}
}

static int wait_ms(const struct watch *w, uint64_t now)
{
	uint64_t ms = w->ready ? 1000 : STARTING_MS;
	if (w->watchdog_ms && w->next_dog_ms > now && w->next_dog_ms - now < ms)
		ms = w->next_dog_ms - now;
	return (int)ms;
}

/* Whether it is one that ends us. */
static bool take_signal(const struct supervise_config *c)
{
	struct signalfd_siginfo info;
	if (read(c->signal_fd, &info, sizeof(info)) != sizeof(info))
		return false;
	if (info.ssi_signo == SIGHUP) {
		c->hang_up(c->ctx);
		return false;
	}
	log_info("stopping", LOG_STR("signal", info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT"));
	return true;
}

bool supervise(const struct supervise_config *config)
{
	struct watch w = { .config = config, .watchdog_ms = notify_watchdog_ms() };
	struct pollfd fds[2] = { { .fd = config->signal_fd, .events = POLLIN }, { .fd = config->fatal_fd, .events = POLLIN } };
	notify_send("STATUS=waiting for the cell");
	for (;;) {
		uint64_t now = mono_ms();
		int n;
		look(&w, now);
		config->tick(config->ctx);
		n = poll(fds, 2, wait_ms(&w, now));
		if (n < 0 && errno != EINTR)
			return false;
		if (n <= 0)
			continue;
		if (!fds[1].revents && !take_signal(config))
			continue;
		notify_send("STOPPING=1");
		return !fds[1].revents;
	}
}
