/* snapshot_cmd.c: what is done with a backup while no server runs (docs/operations.md, "Backup and restore").
 *
 * restore makes the data directory of one member of a new cell. It is made aside (DIR.restoring) and renamed at the end, so a crash leaves
 * nothing that a server would take for a member. Each member restores from the same file with the same --initial-cluster and token; what
 * must be equal on all of them (the state, the cell's ID) depends on these alone, and what must not (the directory's ID) is random. */
#include "snapshot_cmd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cell.h"
#include "core/lease/lease.h"
#include "core/restore.h"
#include "core/snapshot/backup.h"
#include "core/store/store.h"
#include "options.h"
#include "storage/storage.h"

enum { EXIT_USAGE = 2, READ_BYTES = 1 << 20, ARGS_MAX = 64, OPENED_MAX = 4096 };

static const char usage[] =
	"holdfastd snapshot: look at a backup, or make a member's data directory of it\n\n"
	"Usage: holdfastd snapshot status FILE [--write-out simple|json]\n"
	"       holdfastd snapshot restore FILE --data-dir DIR [--name NAME] [--initial-cluster NAME=URL,...]\n"
	"                [--initial-advertise-peer-urls URL,...] [--initial-cluster-token TOKEN]\n\n"
	"A backup is made with `holdfastctl snapshot save FILE` or `etcdctl snapshot save FILE`. Each member of the new cell is restored from the\n"
	"same file with the same --initial-cluster and --initial-cluster-token, into a directory that is absent or empty. All keys without a\n"
	"lease, users, roles and permissions are kept; every lease has ended, with its keys and locks. The new cell's revisions begin beyond all\n"
	"that the old one can have reached.\n";

/* ---- reading ---- */

static int complain(const char *file, const char *why)
{
	fprintf(stderr, "holdfastd: %s: %s\n", file, why);
	return EXIT_FAILURE;
}

static enum err feed_all(int fd, struct backup_reader *r, const char **ret_why)
{
	uint8_t *piece = mem_alloc(READ_BYTES);
	enum err e = ERR_OK;
	ssize_t n = 0;
	while (!e && (n = read(fd, piece, READ_BYTES)) > 0)
		e = backup_reader_feed(r, slice_of(piece, (size_t)n));
	*ret_why = e ? backup_reader_why(r) : n < 0 ? strerror(errno) : NULL;
	free(piece);
	return e ? e : n < 0 ? ERR_IO : ERR_OK;
}

/* Says what is wrong with the file. */
static bool read_backup(const char *file, struct state *ret, struct backup_info *info)
{
	struct backup_reader *r;
	const char *why = NULL;
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	enum err e;
	if (fd < 0) {
		complain(file, strerror(errno));
		return false;
	}
	r = backup_reader_new();
	e = feed_all(fd, r, &why);
	close(fd);
	if (!e) {
		e = backup_reader_finish(r, ret, info);
		why = backup_reader_why(r);
	}
	if (e)
		complain(file, why);
	backup_reader_free(r);
	return e == ERR_OK;
}

/* ---- status ---- */

static uint64_t live_keys(const struct state *st)
{
	struct tree_cursor c;
	uint64_t n = 0;
	for (struct tree_record *r = tree_first(&c, &st->keys); r; r = tree_next(&c)) {
		const struct key_record *k = (const struct key_record *)(const void *)r;
		n += !kv_is_tombstone(k->cap ? k->versions[k->len - 1] : k->one);
	}
	return n;
}

static void print_status(const struct state *st, const struct backup_info *i, bool json)
{
	const char *format = json ? "{\"hash\":\"%016llx\",\"revision\":%lld,\"totalKey\":%llu,\"totalSize\":%llu,\"leases\":%llu,\"members\":%llu,"
				    "\"index\":%llu,\"cell\":\"%016llx\",\"sha256\":\""
				  : "hash %016llx\nrevision %lld\nkeys %llu\nbytes %llu\nleases %llu\nmembers %llu\nindex %llu\ncell %016llx\nsha256 ";
	printf(format, (unsigned long long)i->state_hash, (long long)st->revision, (unsigned long long)live_keys(st), (unsigned long long)i->bytes,
	       (unsigned long long)st->leases.len, (unsigned long long)st->members.len, (unsigned long long)st->applied.index,
	       (unsigned long long)i->cell_id);
	for (size_t at = 0; at < sizeof(i->checksum); at++)
		printf("%02x", i->checksum[at]);
	printf(json ? "\"}\n" : "\n");
}

static int status(const char *file, bool json)
{
	struct backup_info info;
	struct state st;
	if (!read_backup(file, &st, &info))
		return EXIT_FAILURE;
	print_status(&st, &info, json);
	state_deinit(&st);
	return EXIT_SUCCESS;
}

/* ---- restore ---- */

/* What may lie in a fresh directory: what a new file system brings along. */
static bool is_empty(const char *dir)
{
	DIR *d = opendir(dir);
	bool empty = true;
	if (!d)
		return errno == ENOENT;
	for (struct dirent *e; empty && (e = readdir(d));)
		empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || strcmp(e->d_name, "lost+found") == 0;
	closedir(d);
	return empty;
}

struct restoring {
	const struct options *options;
	struct cell cell;
	struct member_spec members[OPTIONS_MEMBERS_MAX];
};

static void list_members(struct restoring *r)
{
	const struct options *o = r->options;
	for (size_t i = 0; i < o->members_len; i++)
		r->members[i] = (struct member_spec){ o->members[i].name, (const char *const *)o->members[i].peer_urls.urls, o->members[i].peer_urls.len };
}

static enum err write_chunks(struct storage_snapshot_writer *w, const struct state *st, uint64_t cell_id, struct errmsg *em)
{
	struct storage_snapshot_meta meta = { .index = st->applied.index, .term = st->applied.term, .state_hash = state_hash(st) };
	struct snapshot_encoder *enc = snapshot_encoder_new(st, cell_id);
	struct buf chunk = { .ptr = NULL };
	enum err e = ERR_OK;
	while (!e && snapshot_encoder_next(enc, &chunk)) {
		e = storage_snapshot_write(w, meta.chunks++, buf_view(&chunk), em);
		meta.bytes += chunk.len;
		buf_clear(&chunk);
	}
	snapshot_encoder_free(enc);
	buf_free(&chunk);
	return e ? e : storage_snapshot_install_finish(w, &meta, /*keep_log=*/false, em);
}

static enum err fill(struct storage *storage, const struct state *st, uint64_t cell_id, struct errmsg *em)
{
	struct storage_hard_state hard = { .term = st->applied.term, .commit = st->applied.index };
	struct storage_snapshot_writer *w;
	enum err e = storage_snapshot_create(storage, st->applied.index, st->applied.term, &w, em);
	if (e)
		return e;
	e = write_chunks(w, st, cell_id, em);
	if (e) {
		storage_snapshot_abort(w);
		return e;
	}
	return storage_commit(storage, &(struct storage_batch){ .hard = &hard }, em);
}

static bool random_id(uint64_t *ret)
{
	*ret = 0;
	while (*ret == 0)
		if (getrandom(ret, sizeof(*ret), 0) != sizeof(*ret))
			return false;
	return true;
}

static enum err make_directory(const struct restoring *r, const struct state *st, const char *dir, struct errmsg *em)
{
	const struct options *o = r->options;
	struct storage_options so = {
		.dir = dir,
		.identity = { .cell_id = r->cell.cell_id, .member_id = r->cell.self, .name = slice_of_str(o->name),
			      .cell_token = slice_of_str(cell_backup_token(&r->cell)), .origin = buf_view(&r->cell.origin) },
	};
	struct storage *storage;
	enum err e;
	if (!random_id(&so.identity.data_dir_id)) {
		errmsg_set(em, "no random numbers: %s", strerror(errno));
		return ERR_IO;
	}
	e = storage_open(&so, &storage, em);
	if (e)
		return e;
	e = fill(storage, st, r->cell.cell_id, em);
	storage_close(storage);
	return e;
}

static bool sync_parent(const char *dir)
{
	char *parent = strdup(dir), *slash = strrchr(parent, '/');
	int fd;
	bool ok;
	if (slash)
		slash[slash == parent] = '\0';
	fd = open(slash ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ok = fd >= 0 && fsync(fd) == 0;
	if (fd >= 0)
		close(fd);
	free(parent);
	return ok;
}

static int put_in_place(const char *aside, const char *dir)
{
	rmdir(dir); /* an empty one is in the way of nothing */
	if (rename(aside, dir) != 0 || !sync_parent(dir))
		return complain(dir, strerror(errno));
	return EXIT_SUCCESS;
}

static int restore_into(struct restoring *r, struct state *st, const struct backup_info *info)
{
	const struct options *o = r->options;
	struct errmsg em = { .text = "" };
	revision before = st->revision;
	uint64_t leases = st->leases.len;
	char aside[OPENED_MAX];
	if (!is_empty(o->data_dir))
		return complain(o->data_dir, "the directory is not empty; a backup is restored into a new one");
	if ((size_t)snprintf(aside, sizeof(aside), "%s.restoring", o->data_dir) >= sizeof(aside))
		return complain(o->data_dir, "the name is too long");
	if (!is_empty(aside))
		return complain(aside, "what an earlier restore has left is in the way; remove it");
	list_members(r);
	cell_from_backup(&r->cell, o, info->checksum);
	restore_new_cell(st, r->members, o->members_len, cell_backup_token(&r->cell));
	if (make_directory(r, st, aside, &em))
		return complain(aside, em.text);
	if (put_in_place(aside, o->data_dir))
		return EXIT_FAILURE;
	printf("restored '%s' into '%s': member %s (%016llx) of cell %016llx, revision %lld, %llu keys, %llu leases ended\n", r->options->name, o->data_dir,
	       o->name, (unsigned long long)r->cell.self, (unsigned long long)r->cell.cell_id, (long long)before, (unsigned long long)live_keys(st),
	       (unsigned long long)leases);
	return EXIT_SUCCESS;
}

static int restore(const char *file, const struct options *o)
{
	struct restoring r = { .options = o };
	struct backup_info info;
	struct state st;
	int code;
	if (!read_backup(file, &st, &info))
		return EXIT_FAILURE;
	cell_init(&r.cell);
	code = restore_into(&r, &st, &info);
	cell_free(&r.cell);
	state_deinit(&st);
	return code;
}

/* ---- the command line ---- */

struct args {
	const char *file;
	bool json;
	char *rest[ARGS_MAX]; /* for options_parse */
	int rest_len;
};

static bool is_flag(const char *arg, const char *name, const char **ret_value)
{
	size_t len = strlen(name);
	while (*arg == '-')
		arg++;
	if (strncmp(arg, name, len) != 0 || (arg[len] != '\0' && arg[len] != '='))
		return false;
	*ret_value = arg[len] == '=' ? arg + len + 1 : NULL;
	return true;
}

/* What etcdutl's restore knows and means nothing here. */
static bool is_ignored(const char *arg, bool *ret_takes_value)
{
	static const struct {
		const char *name;
		bool value;
	} known[] = { { "skip-hash-check", false }, { "mark-compacted", false }, { "bump-revision", true }, { "wal-dir", true } };
	const char *value;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (!is_flag(arg, known[i].name, &value))
			continue;
		fprintf(stderr, "holdfastd: --%s has no meaning here: %s\n", known[i].name,
			i == 0 ? "checksums are always checked" : i == 3 ? "there is one directory" : "revisions are always raised, and what was before is compacted");
		*ret_takes_value = known[i].value && !value;
		return true;
	}
	return false;
}

static int bad_usage(const char *what, const char *arg)
{
	fprintf(stderr, "holdfastd: snapshot: %s '%s' (see holdfastd snapshot --help)\n", what, arg);
	return EXIT_USAGE;
}

static int parse(struct args *a, int argc, char **argv)
{
	a->rest[a->rest_len++] = argv[0];
	for (int i = 2; i < argc; i++) {
		const char *value = NULL;
		bool takes_value = false;
		if (argv[i][0] != '-') {
			if (a->file)
				return bad_usage("there is one file, what is", argv[i]);
			a->file = argv[i];
		} else if (is_flag(argv[i], "write-out", &value) || is_flag(argv[i], "w", &value)) {
			if (!value && i + 1 < argc)
				value = argv[++i];
			a->json = value && strcmp(value, "json") == 0;
			if (!value || (!a->json && strcmp(value, "simple") != 0 && strcmp(value, "table") != 0))
				return bad_usage("no such format:", value ? value : "");
		} else if (is_ignored(argv[i], &takes_value)) {
			i += takes_value;
		} else if (a->rest_len + 2 < ARGS_MAX) {
			a->rest[a->rest_len++] = argv[i];
			if (!strchr(argv[i], '=') && i + 1 < argc)
				a->rest[a->rest_len++] = argv[++i];
		} else {
			return bad_usage("too many flags:", argv[i]);
		}
	}
	return a->file ? 0 : bad_usage("no file is named after", argv[1]);
}

static int run_restore(struct args *a)
{
	struct options *o = mem_zalloc(sizeof(*o));
	struct errmsg em = { .text = "" };
	int code = EXIT_USAGE;
	switch (options_parse(o, a->rest_len, a->rest, &em)) {
	case OPTIONS_RUN:
		code = restore(a->file, o);
		break;
	case OPTIONS_EXIT_OK:
		code = EXIT_SUCCESS;
		break;
	case OPTIONS_ERROR:
		fprintf(stderr, "holdfastd: %s\n", em.text);
		break;
	}
	options_free(o);
	free(o);
	return code;
}

int snapshot_command(int argc, char **argv)
{
	struct args a = { .file = NULL };
	const char *what = argc > 1 ? argv[1] : "--help";
	int code;
	if (strcmp(what, "--help") == 0 || strcmp(what, "-h") == 0 || strcmp(what, "help") == 0) {
		fputs(usage, stdout);
		return EXIT_SUCCESS;
	}
	if (strcmp(what, "status") != 0 && strcmp(what, "restore") != 0)
		return bad_usage("neither status nor restore:", what);
	code = parse(&a, argc, argv);
	if (code)
		return code;
	if (strcmp(what, "restore") == 0)
		return run_restore(&a);
	return a.rest_len > 1 ? bad_usage("status takes no", a.rest[1]) : status(a.file, a.json);
}
