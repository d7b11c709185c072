/* cmd_snapshot.c: snapshot save: a backup of the cell as one file.
 *
 * It is written beside its place (FILE.part), synced, held against the checksum at its end, and only then renamed: what is called FILE is whole. A
 * stream that breaks is begun anew, from the beginning: two replicas need not be at the same revision. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "ctl.h"
#include "etcd/rpc.pb-c.h"
#include "flow.h"

enum { TELL_MS = 200 };

struct saving {
	const char *file;
	struct buf part; /* its name, NUL-terminated */
	int fd;
	uint64_t bytes;
	struct sha256 sum;
	uint8_t tail[SHA256_BYTES]; /* the last bytes so far, which the sum does not have yet */
	size_t tail_len;
	bool tells; /* how far it is: there is a terminal */
	uint64_t told_ms;
};

#define MB(bytes) ((double)(bytes) / 1000000)

/* A line that is written over. */
static void tell(struct saving *s, uint64_t left)
{
	uint64_t now = boot_ms();
	if (!s->tells || (s->told_ms && now < s->told_ms + TELL_MS))
		return;
	s->told_ms = now;
	fprintf(stderr, "\r\033[Ksaving %s: %.1f of %.1f MB", s->file, MB(s->bytes), MB(s->bytes + left));
}

/* What comes next has the line to itself. */
static void tell_end(struct saving *s)
{
	if (s->told_ms)
		fputs("\r\033[K", stderr);
	s->told_ms = 0;
}

static void fail(struct flow *f, const char *what)
{
	char text[300];
	snprintf(text, sizeof(text), "%s: %s", what, strerror(errno));
	flow_end(f, EXIT_FAILED, text);
}

static struct call *open_stream(struct flow *f, struct endpoint *e, const struct call_class *class)
{
	static const Etcdserverpb__SnapshotRequest r = ETCDSERVERPB__SNAPSHOT_REQUEST__INIT;
	struct saving *s = f->owner;
	tell_end(s);
	if (s->fd >= 0)
		close(s->fd);
	s->fd = open((const char *)s->part.ptr, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (s->fd < 0) {
		fail(f, (const char *)s->part.ptr);
		return NULL;
	}
	s->bytes = 0;
	s->tail_len = 0;
	sha256_init(&s->sum);
	return call_start(f->c->link, e, METHOD_MAINTENANCE_SNAPSHOT, &r.base, NEVER_MS, class, f);
}

static bool write_all(int fd, struct slice bytes)
{
	while (bytes.len) {
		ssize_t n = write(fd, bytes.ptr, bytes.len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		bytes = slice_of(bytes.ptr + n, bytes.len - (size_t)n);
	}
	return true;
}

/* The last SHA256_BYTES stay in the tail. */
static void add_to_sum(struct saving *s, struct slice bytes)
{
	struct buf all = { .ptr = NULL };
	size_t keep;
	buf_append_slice(&all, slice_of(s->tail, s->tail_len));
	buf_append_slice(&all, bytes);
	keep = all.len < sizeof(s->tail) ? all.len : sizeof(s->tail);
	sha256_add(&s->sum, slice_of(all.ptr, all.len - keep));
	memcpy(s->tail, all.ptr + all.len - keep, keep);
	s->tail_len = keep;
	buf_free(&all);
}

static void done(struct flow *f)
{
	struct saving *s = f->owner;
	uint8_t digest[SHA256_BYTES];
	tell_end(s);
	sha256_end(&s->sum, digest);
	if (s->tail_len != sizeof(digest) || memcmp(digest, s->tail, sizeof(digest)) != 0) {
		flow_end(f, EXIT_FAILED, "what came is damaged: its checksum is wrong");
	} else if (fsync(s->fd) != 0 || rename((const char *)s->part.ptr, s->file) != 0) {
		fail(f, s->file);
	} else {
		if (f->c->out.format == OUTPUT_JSON)
			out_printf("{\"bytes\":%" PRIu64 "}\n", s->bytes);
		else
			out_printf("saved %" PRIu64 " bytes to %s\n", s->bytes, s->file);
		flow_end(f, EXIT_DONE, NULL);
	}
}

static void reply(struct flow *f, const ProtobufCMessage *m)
{
	struct saving *s = f->owner;
	const Etcdserverpb__SnapshotResponse *r = (const Etcdserverpb__SnapshotResponse *)m;
	struct slice blob = slice_of(r->blob.data, r->blob.len);
	if (!write_all(s->fd, blob)) {
		tell_end(s);
		fail(f, (const char *)s->part.ptr);
		return;
	}
	add_to_sum(s, blob);
	s->bytes += blob.len;
	tell(s, r->remaining_bytes);
	if (r->remaining_bytes == 0)
		done(f);
}

int command_snapshot_save(struct ctl *c)
{
	static const struct flow_class class = { METHOD_MAINTENANCE_SNAPSHOT, open_stream, reply, "save a snapshot" };
	struct saving s = { .file = c->args.words[0], .fd = -1, .tells = isatty(STDERR_FILENO) };
	struct flow f = { .class = &class, .c = c, .owner = &s };
	int code;
	buf_printf(&s.part, "%s.part", s.file);
	buf_append_byte(&s.part, 0);
	code = flow_run(&f);
	tell_end(&s);
	if (s.fd >= 0)
		close(s.fd);
	if (code != EXIT_DONE)
		unlink((const char *)s.part.ptr);
	buf_free(&s.part);
	return code;
}
