/* snap_list.c: which whole snapshots there are, and when the old ones go.
 *
 * A directory of this name is whole: it got the name only after everything in it was synced and read back. More than one
 * is there only while a reader holds an old one, or after a crash before the old one was removed: the newest counts. */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

#define NAME_FORMAT SNAP_PREFIX "%020" PRIu64 "-%020" PRIu64 /* of one length, so that ls sorts them */
#define NAME_SIZE 64

static struct snap *snap_of(struct list *it)
{
	return CONTAINER_OF(it, struct snap, link);
}

char *snap_path(const struct storage *st, struct snap_id id, const char *suffix)
{
	char name[NAME_SIZE];
	snprintf(name, sizeof name, NAME_FORMAT "%s", id.index, id.term, suffix);
	return path_join(st->dir, name);
}

bool snap_name_parse(const char *name, const char *suffix, struct snap_id *ret)
{
	char again[NAME_SIZE];
	struct snap_id id;
	if (sscanf(name, SNAP_PREFIX "%" SCNu64 "-%" SCNu64, &id.index, &id.term) != 2)
		return false;
	snprintf(again, sizeof again, NAME_FORMAT "%s", id.index, id.term, suffix);
	if (strcmp(name, again) != 0)
		return false;
	*ret = id;
	return true;
}

static bool is_leftover(const char *name)
{
	size_t len = strlen(name), suffix = strlen(TMP_SUFFIX);
	return strncmp(name, SNAP_PREFIX, strlen(SNAP_PREFIX)) == 0 && len > suffix &&
	       strcmp(name + len - suffix, TMP_SUFFIX) == 0;
}

static void insert_sorted(struct storage *st, struct snap *sn)
{
	struct list *at = st->snaps.prev;
	while (at != &st->snaps && snap_of(at)->id.index > sn->id.index)
		at = at->prev;
	list_insert_between(&sn->link, at, at->next);
}

static struct snap *insert_new(struct storage *st, struct snap_id id)
{
	struct snap *sn = mem_zalloc(sizeof *sn);
	sn->id = id;
	insert_sorted(st, sn);
	return sn;
}

static enum err dir_open(struct storage *st, DIR **ret, struct errmsg *em)
{
	*ret = opendir(st->dir);
	return *ret ? ERR_OK : disk_err(st->dir, errno, "list the data directory", em);
}

enum err snap_list_load(struct storage *st, struct errmsg *em)
{
	DIR *d;
	enum err e = dir_open(st, &d, em);
	if (e)
		return e;
	for (struct dirent *de; (de = readdir(d)) != NULL;) {
		struct snap_id id;
		if (snap_name_parse(de->d_name, "", &id))
			insert_new(st, id);
	}
	closedir(d);
	return ERR_OK;
}

static enum err remove_leftovers(struct storage *st, struct errmsg *em)
{
	DIR *d;
	enum err e = dir_open(st, &d, em);
	if (e)
		return e;
	for (struct dirent *de; !e && (de = readdir(d)) != NULL;) {
		if (!is_leftover(de->d_name))
			continue;
		char *path = path_join(st->dir, de->d_name);
		e = dir_remove(path, em);
		free(path);
	}
	closedir(d);
	return e;
}

/* Moves all but the newest one that nobody reads to `gone`. */
static void unlist_old(struct storage *st, struct list *gone)
{
	LIST_FOR_EACH_SAFE(it, tmp, &st->snaps) {
		if (it == st->snaps.prev || snap_of(it)->readers)
			continue;
		list_remove(it);
		list_push_back(gone, it);
	}
}

/* What cannot be removed now is found again, and removed, by the next storage_open(). */
static enum err remove_unlisted(struct storage *st, struct list *gone, struct errmsg *em)
{
	enum err e = ERR_OK;
	for (struct list *it; (it = list_pop_front(gone)) != NULL;) {
		struct snap *sn = snap_of(it);
		char *path = snap_path(st, sn->id, "");
		enum err one = dir_remove(path, em);
		e = e ? e : one;
		free(path);
		free(sn);
	}
	return e;
}

enum err snap_list_clean(struct storage *st, struct errmsg *em)
{
	struct list gone;
	list_init(&gone);
	unlist_old(st, &gone);
	enum err e = remove_unlisted(st, &gone, em);
	return e ? e : remove_leftovers(st, em);
}

struct snap_id snap_newest(struct storage *st)
{
	struct snap_id id = { 0 };
	pthread_mutex_lock(&st->snap_mu);
	if (!list_empty(&st->snaps))
		id = snap_of(st->snaps.prev)->id;
	pthread_mutex_unlock(&st->snap_mu);
	return id;
}

struct snap *snap_acquire(struct storage *st)
{
	struct snap *sn = NULL;
	pthread_mutex_lock(&st->snap_mu);
	if (!list_empty(&st->snaps)) {
		sn = snap_of(st->snaps.prev);
		sn->readers++;
	}
	pthread_mutex_unlock(&st->snap_mu);
	return sn;
}

void snap_release(struct storage *st, struct snap *sn)
{
	struct list gone;
	struct errmsg ignored;
	list_init(&gone);
	pthread_mutex_lock(&st->snap_mu);
	ASSERT(sn->readers > 0);
	sn->readers--;
	unlist_old(st, &gone);
	pthread_mutex_unlock(&st->snap_mu);
	(void)remove_unlisted(st, &gone, &ignored);
}

void snap_publish(struct storage *st, struct snap_id id)
{
	struct list gone;
	struct errmsg ignored;
	list_init(&gone);
	pthread_mutex_lock(&st->snap_mu);
	insert_new(st, id);
	unlist_old(st, &gone);
	pthread_mutex_unlock(&st->snap_mu);
	(void)remove_unlisted(st, &gone, &ignored);
}

void snap_list_drop_newest(struct storage *st)
{
	struct snap *sn = snap_of(st->snaps.prev);
	ASSERT(!list_empty(&st->snaps));
	ASSERT(sn->readers == 0);
	list_remove(&sn->link);
	free(sn);
}

void snap_list_free(struct storage *st)
{
	for (struct list *it; (it = list_pop_front(&st->snaps)) != NULL;) {
		ASSERT(snap_of(it)->readers == 0);
		free(snap_of(it));
	}
}
