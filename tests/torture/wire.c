/* wire.c: wire SUBNET PID...: the cables between network namespaces, in our hands.
 *
 * Node 0 is the caller's own namespace, node N the one of the Nth PID. Each gets a device "wire" with the address SUBNET.(N+1), and every packet
 * from one node to another passes through this process, which may drop it, keep it for a while, or deliver it twice: per direction, so that a pair of
 * nodes may be cut one way. Nobody is told; to the nodes it is a network that is bad.
 *
 * Orders are lines on standard input, directions given as two node numbers:
 *   cut A B | join A B | slow A B MS JITTER_MS | loss A B PER_MILLE | twice A B PER_MILLE | calm (all as at first) | count
 * "ready" is printed once the devices are up, and "packets N dropped N" on count. It ends with its standard input.
 *
 *   (W1) what is kept is bounded (KEPT_MAX a direction): what is more is dropped, as by any router.
 *   (W2) a packet is kept for its direction's delay as of its arrival; with a jitter, later ones may overtake it. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { NODES_MAX = 16, PACKET_MAX = 9000, KEPT_MAX = 5000, BATCH = 64 };

struct direction {
	bool cut;
	uint32_t delay_us, jitter_us, loss_per_mille, twice_per_mille;
	size_t kept;
};

struct kept {
	uint64_t due_us;
	struct direction *direction;
	int to;
	size_t len;
	uint8_t bytes[];
};

static struct direction directions[NODES_MAX][NODES_MAX];
static int devices[NODES_MAX];
static size_t nodes;
static struct kept *heap[NODES_MAX * NODES_MAX * KEPT_MAX + 1]; /* from 1 */
static size_t heap_len;
static uint64_t packets, dropped;

static void die(const char *what)
{
	fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static bool chance(uint32_t per_mille)
{
	return per_mille > 0 && (uint32_t)(random() % 1000) < per_mille;
}

/* ---- devices ---- */

static void set_address(const char *subnet, size_t node)
{
	struct ifreq r = { .ifr_name = "wire" };
	struct sockaddr_in a = { .sin_family = AF_INET };
	char text[64];
	int s = socket(AF_INET, SOCK_DGRAM, 0);

	snprintf(text, sizeof text, "%s.%zu", subnet, node + 1);
	if (s < 0 || inet_pton(AF_INET, text, &a.sin_addr) != 1)
		die(text);
	memcpy(&r.ifr_addr, &a, sizeof a);
	if (ioctl(s, SIOCSIFADDR, &r) < 0)
		die("address");
	inet_pton(AF_INET, "255.255.255.0", &a.sin_addr);
	memcpy(&r.ifr_netmask, &a, sizeof a);
	if (ioctl(s, SIOCSIFNETMASK, &r) < 0)
		die("netmask");
	r.ifr_mtu = PACKET_MAX;
	if (ioctl(s, SIOCSIFMTU, &r) < 0)
		die("mtu");
	r.ifr_flags = IFF_UP | IFF_RUNNING;
	if (ioctl(s, SIOCSIFFLAGS, &r) < 0)
		die("up");
	strcpy(r.ifr_name, "lo");
	r.ifr_flags = IFF_UP | IFF_RUNNING;
	if (ioctl(s, SIOCSIFFLAGS, &r) < 0)
		die("lo");
	close(s);
}

static int open_device(void)
{
	struct ifreq r = { .ifr_name = "wire", .ifr_flags = IFF_TUN | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		die("/dev/net/tun");
	if (ioctl(fd, TUNSETIFF, &r) < 0)
		die("TUNSETIFF");
	return fd;
}

static void enter(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		die(path);
	if (setns(fd, CLONE_NEWNET) < 0)
		die("setns");
	close(fd);
}

static void open_devices(const char *subnet, char **pids)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/ns/net", getpid());
	for (size_t i = 0; i < nodes; i++) {
		if (i > 0) {
			snprintf(path, sizeof path, "/proc/%s/ns/net", pids[i - 1]);
			enter(path);
		}
		devices[i] = open_device();
		set_address(subnet, i);
	}
}

/* ---- what is kept ---- */

static void swap(size_t a, size_t b)
{
	struct kept *k = heap[a];

	heap[a] = heap[b];
	heap[b] = k;
}

static void keep(struct direction *d, int to, const uint8_t *bytes, size_t len, uint64_t due)
{
	struct kept *k;

	if (d->kept >= KEPT_MAX) { /* W1 */
		dropped++;
		return;
	}
	k = malloc(sizeof *k + len);
	if (!k)
		die("memory");
	*k = (struct kept){ .due_us = due, .direction = d, .to = to, .len = len };
	memcpy(k->bytes, bytes, len);
	d->kept++;
	heap[++heap_len] = k;
	for (size_t i = heap_len; i > 1 && heap[i]->due_us < heap[i / 2]->due_us; i /= 2)
		swap(i, i / 2);
}

static struct kept *take(void)
{
	struct kept *k = heap[1];
	size_t i = 1;

	heap[1] = heap[heap_len--];
	for (;;) {
		size_t least = i;

		if (2 * i <= heap_len && heap[2 * i]->due_us < heap[least]->due_us)
			least = 2 * i;
		if (2 * i + 1 <= heap_len && heap[2 * i + 1]->due_us < heap[least]->due_us)
			least = 2 * i + 1;
		if (least == i)
			return k;
		swap(i, least);
		i = least;
	}
}

static void deliver(int to, const uint8_t *bytes, size_t len)
{
	if (write(to, bytes, len) != (ssize_t)len)
		dropped++; /* a device whose queue is full, or whose node has gone */
}

static void deliver_due(void)
{
	uint64_t now = now_us();

	while (heap_len > 0 && heap[1]->due_us <= now) {
		struct kept *k = take();

		k->direction->kept--;
		if (k->direction->cut)
			dropped++;
		else
			deliver(k->to, k->bytes, k->len);
		free(k);
	}
}

/* ---- packets ---- */

static void pass(size_t from, const uint8_t *bytes, size_t len)
{
	size_t to = len >= 20 && bytes[0] >> 4 == 4 ? (size_t)bytes[19] - 1 : NODES_MAX;
	struct direction *d;

	if (to >= nodes || to == from)
		return;
	packets++;
	d = &directions[from][to];
	if (d->cut || chance(d->loss_per_mille)) {
		dropped++;
		return;
	}
	for (int copies = chance(d->twice_per_mille) ? 2 : 1; copies > 0; copies--) {
		uint64_t wait = d->delay_us + (d->jitter_us ? (uint64_t)random() % d->jitter_us : 0);

		if (wait == 0 && d->kept == 0)
			deliver(devices[to], bytes, len);
		else
			keep(d, devices[to], bytes, len, now_us() + wait);
	}
}

static void drain(size_t from)
{
	uint8_t bytes[PACKET_MAX + 100];

	for (int i = 0; i < BATCH; i++) {
		ssize_t n = read(devices[from], bytes, sizeof bytes);

		if (n <= 0)
			return;
		pass(from, bytes, (size_t)n);
	}
}

/* ---- orders ---- */

static void calm(void)
{
	for (size_t i = 0; i < nodes; i++)
		for (size_t j = 0; j < nodes; j++)
			directions[i][j] = (struct direction){ .kept = directions[i][j].kept };
}

static void obey(const char *line)
{
	char word[16];
	unsigned a = 0, b = 0, x = 0, y = 0;
	int n = sscanf(line, "%15s %u %u %u %u", word, &a, &b, &x, &y);
	struct direction *d = &directions[a % NODES_MAX][b % NODES_MAX];

	if (n < 1)
		return;
	if (strcmp(word, "calm") == 0) {
		calm();
	} else if (strcmp(word, "count") == 0) {
		printf("packets %llu dropped %llu\n", (unsigned long long)packets, (unsigned long long)dropped);
		fflush(stdout);
	} else if (strcmp(word, "cut") == 0) {
		d->cut = true;
	} else if (strcmp(word, "join") == 0) {
		d->cut = false;
	} else if (strcmp(word, "slow") == 0) {
		d->delay_us = x * 1000;
		d->jitter_us = y * 1000;
	} else if (strcmp(word, "loss") == 0) {
		d->loss_per_mille = x;
	} else if (strcmp(word, "twice") == 0) {
		d->twice_per_mille = x;
	} else {
		fprintf(stderr, "wire: no such order: %s\n", line);
		exit(1);
	}
}

/* False at the end of the orders. */
static bool read_orders(void)
{
	static char text[4096];
	static size_t len;
	ssize_t n = read(0, text + len, sizeof text - 1 - len);
	char *end;

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	len += (size_t)n;
	while ((end = memchr(text, '\n', len))) {
		size_t line = (size_t)(end - text) + 1;

		*end = 0;
		obey(text);
		memmove(text, text + line, len - line);
		len -= line;
	}
	return true;
}

static int patience_ms(void)
{
	uint64_t now = now_us();

	if (heap_len == 0)
		return -1;
	return heap[1]->due_us <= now ? 0 : (int)((heap[1]->due_us - now + 999) / 1000);
}

int main(int argc, char **argv)
{
	struct pollfd fds[NODES_MAX + 1];

	if (argc < 3 || argc - 1 > NODES_MAX) {
		fprintf(stderr, "usage: wire SUBNET PID...\n");
		return 2;
	}
	nodes = (size_t)argc - 1;
	open_devices(argv[1], argv + 2);
	for (size_t i = 0; i < nodes; i++)
		fds[i] = (struct pollfd){ .fd = devices[i], .events = POLLIN };
	fds[nodes] = (struct pollfd){ .fd = 0, .events = POLLIN };
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		if (poll(fds, nodes + 1, patience_ms()) < 0 && errno != EINTR)
			die("poll");
		deliver_due();
		for (size_t i = 0; i < nodes; i++)
			if (fds[i].revents)
				drain(i);
		if (fds[nodes].revents && !read_orders())
			return 0;
	}
}
