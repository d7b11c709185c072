/* hooks.c: see hooks.h. */
#include "hooks.h"

#include "base/mem.h"
#include "node/internal.h"

void (*hooks_on_step)(struct core *c, const struct core_event *event);
void (*hooks_on_snapshot_write)(uint64_t chunk);
void (*hooks_on_task)(void);

static pthread_mutex_t table_mu = PTHREAD_MUTEX_INITIALIZER;
static struct hooks *table[HOOKS_MAX];

enum err __real_storage_commit(struct storage *st, const struct storage_batch *batch, struct errmsg *em);
enum err __real_storage_snapshot_install_finish(struct storage_snapshot_writer *w, const struct storage_snapshot_meta *meta, bool keep_log,
						struct errmsg *em);
enum err __real_storage_space(struct storage *st, struct storage_space *ret, struct errmsg *em);
enum err __real_storage_release_ballast(struct storage *st, struct errmsg *em);
enum err __real_storage_restore_ballast(struct storage *st, struct errmsg *em);
enum err __real_storage_snapshot_receive(struct storage *st, const struct storage_snapshot_part *part, struct storage_snapshot_writer **ret,
					 struct errmsg *em);
enum err __real_storage_snapshot_resume(struct storage *st, const struct storage_snapshot_part *part, struct storage_snapshot_writer **ret,
					struct errmsg *em);
enum err __real_storage_read(struct storage *st, uint64_t from, uint64_t to, size_t max_bytes, struct storage_read_result *ret, struct errmsg *em);
void __real_core_step(struct core *c, const struct core_event *event);
enum err __real_storage_snapshot_write(struct storage_snapshot_writer *w, uint64_t number, struct slice chunk, struct errmsg *em);
void __real_snap_queue_task(struct snap *s, struct task *t);

enum err __wrap_storage_commit(struct storage *st, const struct storage_batch *batch, struct errmsg *em);
enum err __wrap_storage_snapshot_install_finish(struct storage_snapshot_writer *w, const struct storage_snapshot_meta *meta, bool keep_log,
						struct errmsg *em);
enum err __wrap_storage_space(struct storage *st, struct storage_space *ret, struct errmsg *em);
enum err __wrap_storage_release_ballast(struct storage *st, struct errmsg *em);
enum err __wrap_storage_restore_ballast(struct storage *st, struct errmsg *em);
enum err __wrap_storage_snapshot_receive(struct storage *st, const struct storage_snapshot_part *part, struct storage_snapshot_writer **ret,
					 struct errmsg *em);
enum err __wrap_storage_snapshot_resume(struct storage *st, const struct storage_snapshot_part *part, struct storage_snapshot_writer **ret,
					struct errmsg *em);
enum err __wrap_storage_read(struct storage *st, uint64_t from, uint64_t to, size_t max_bytes, struct storage_read_result *ret, struct errmsg *em);
void __wrap_core_step(struct core *c, const struct core_event *event);
enum err __wrap_storage_snapshot_write(struct storage_snapshot_writer *w, uint64_t number, struct slice chunk, struct errmsg *em);
void __wrap_snap_queue_task(struct snap *s, struct task *t);

void hooks_init(struct hooks *h)
{
	memset(h, 0, sizeof(*h));
	pthread_mutex_init(&h->mu, NULL);
	pthread_cond_init(&h->changed, NULL);
}

void hooks_deinit(struct hooks *h)
{
	pthread_cond_destroy(&h->changed);
	pthread_mutex_destroy(&h->mu);
}

void hooks_attach(struct hooks *h, struct storage *st)
{
	const struct storage_state *s = storage_state(st);
	size_t i = 0;
	pthread_mutex_lock(&h->mu);
	h->storage = st;
	h->durable_index = s->last_index;
	h->durable_term = s->hard.term;
	h->durable_vote = s->hard.voted_for;
	pthread_mutex_unlock(&h->mu);
	pthread_mutex_lock(&table_mu);
	while (i < HOOKS_MAX && table[i])
		i++;
	ASSERT(i < HOOKS_MAX);
	table[i] = h;
	pthread_mutex_unlock(&table_mu);
}

void hooks_detach(struct hooks *h)
{
	pthread_mutex_lock(&table_mu);
	for (size_t i = 0; i < HOOKS_MAX; i++) {
		if (table[i] == h)
			table[i] = NULL;
	}
	pthread_mutex_unlock(&table_mu);
}

static struct hooks *hooks_of(struct storage *st)
{
	struct hooks *h = NULL;
	pthread_mutex_lock(&table_mu);
	for (size_t i = 0; i < HOOKS_MAX && !h; i++) {
		if (table[i] && table[i]->storage == st)
			h = table[i];
	}
	pthread_mutex_unlock(&table_mu);
	ASSERT(h != NULL);
	return h;
}

void hooks_gate(struct hooks *h, bool on)
{
	pthread_mutex_lock(&h->mu);
	h->gate = on;
	pthread_cond_broadcast(&h->changed);
	pthread_mutex_unlock(&h->mu);
}

void hooks_fail(struct hooks *h, enum err e, unsigned times)
{
	pthread_mutex_lock(&h->mu);
	h->fail = e;
	h->fail_times = times;
	pthread_mutex_unlock(&h->mu);
}

void hooks_full_until_release(struct hooks *h)
{
	pthread_mutex_lock(&h->mu);
	h->fail_until_release = true;
	pthread_mutex_unlock(&h->mu);
}

void hooks_install_full(struct hooks *h, unsigned times)
{
	pthread_mutex_lock(&h->mu);
	h->install_full_times = times;
	pthread_mutex_unlock(&h->mu);
}

void hooks_read_fail(struct hooks *h, enum err e)
{
	pthread_mutex_lock(&h->mu);
	h->read_fail = e;
	pthread_mutex_unlock(&h->mu);
}

void hooks_free_bytes(struct hooks *h, uint64_t bytes)
{
	pthread_mutex_lock(&h->mu);
	h->free_bytes = bytes;
	pthread_mutex_unlock(&h->mu);
}

struct hooks hooks_look(struct hooks *h)
{
	struct hooks copy;
	pthread_mutex_lock(&h->mu);
	copy = *h;
	pthread_mutex_unlock(&h->mu);
	return copy;
}

/* What the commit is to say without being made, or ERR_OK. */
static enum err before_commit(struct hooks *h, const struct storage_batch *batch)
{
	enum err e = ERR_OK;
	pthread_mutex_lock(&h->mu);
	h->commits++;
	h->in_commit++;
	if (batch->entries_len > h->most_entries)
		h->most_entries = batch->entries_len;
	h->cuts += batch->truncate_from != 0;
	while (h->gate)
		pthread_cond_wait(&h->changed, &h->mu);
	if (h->fail_until_release) {
		e = ERR_DISK_FULL;
	} else if (h->fail_times) {
		h->fail_times--;
		e = h->fail;
	}
	pthread_mutex_unlock(&h->mu);
	return e;
}

static void after_commit(struct hooks *h, const struct storage_batch *batch, enum err e)
{
	pthread_mutex_lock(&h->mu);
	h->in_commit--;
	if (!e && batch->hard) {
		h->durable_term = batch->hard->term;
		h->durable_vote = batch->hard->voted_for;
	}
	if (!e && batch->truncate_from && batch->truncate_from <= h->durable_index)
		h->durable_index = batch->truncate_from - 1;
	if (!e && batch->entries_len)
		h->durable_index = batch->entries[batch->entries_len - 1].index;
	pthread_mutex_unlock(&h->mu);
}

enum err __wrap_storage_commit(struct storage *st, const struct storage_batch *batch, struct errmsg *em)
{
	struct hooks *h = hooks_of(st);
	enum err e = before_commit(h, batch);
	if (e)
		errmsg_set(em, "the test says so");
	else
		e = __real_storage_commit(st, batch, em);
	after_commit(h, batch, e);
	return e;
}

/* A writer does not name its storage: noted when it is made. */
static void note_writer(struct storage *st, struct storage_snapshot_writer *w)
{
	struct hooks *h = hooks_of(st);
	pthread_mutex_lock(&h->mu);
	h->writers[h->created++ % HOOKS_WRITERS] = w;
	pthread_mutex_unlock(&h->mu);
}

enum err __wrap_storage_snapshot_receive(struct storage *st, const struct storage_snapshot_part *part, struct storage_snapshot_writer **ret,
					 struct errmsg *em)
{
	enum err e = __real_storage_snapshot_receive(st, part, ret, em);
	if (!e)
		note_writer(st, *ret);
	return e;
}

enum err __wrap_storage_snapshot_resume(struct storage *st, const struct storage_snapshot_part *part, struct storage_snapshot_writer **ret,
					struct errmsg *em)
{
	enum err e = __real_storage_snapshot_resume(st, part, ret, em);
	if (!e)
		note_writer(st, *ret);
	return e;
}

static struct hooks *hooks_of_writer(const struct storage_snapshot_writer *w)
{
	struct hooks *found = NULL;
	pthread_mutex_lock(&table_mu);
	for (size_t i = 0; i < HOOKS_MAX && !found; i++) {
		if (!table[i])
			continue;
		pthread_mutex_lock(&table[i]->mu);
		for (size_t k = 0; k < HOOKS_WRITERS; k++) {
			if (table[i]->writers[k] == w)
				found = table[i];
		}
		pthread_mutex_unlock(&table[i]->mu);
	}
	pthread_mutex_unlock(&table_mu);
	ASSERT(found != NULL);
	return found;
}

enum err __wrap_storage_snapshot_install_finish(struct storage_snapshot_writer *w, const struct storage_snapshot_meta *meta, bool keep_log,
						struct errmsg *em)
{
	struct hooks *h = hooks_of_writer(w);
	enum err e = ERR_OK;
	pthread_mutex_lock(&h->mu);
	if (h->install_full_times) {
		h->install_full_times--;
		e = ERR_DISK_FULL;
	}
	pthread_mutex_unlock(&h->mu);
	if (e)
		errmsg_set(em, "the test says so");
	else
		e = __real_storage_snapshot_install_finish(w, meta, keep_log, em);
	pthread_mutex_lock(&h->mu);
	if (!e) {
		h->installs++;
		if (h->durable_index < meta->index)
			h->durable_index = meta->index;
	}
	pthread_mutex_unlock(&h->mu);
	return e;
}

enum err __wrap_storage_space(struct storage *st, struct storage_space *ret, struct errmsg *em)
{
	struct hooks h = hooks_look(hooks_of(st));
	enum err e = __real_storage_space(st, ret, em);
	if (!e && h.free_bytes)
		ret->free_bytes = h.free_bytes;
	return e;
}

enum err __wrap_storage_read(struct storage *st, uint64_t from, uint64_t to, size_t max_bytes, struct storage_read_result *ret, struct errmsg *em)
{
	enum err e = hooks_look(hooks_of(st)).read_fail;
	if (e)
		errmsg_set(em, "the test says so");
	return e ? e : __real_storage_read(st, from, to, max_bytes, ret, em);
}

enum err __wrap_storage_release_ballast(struct storage *st, struct errmsg *em)
{
	struct hooks *h = hooks_of(st);
	pthread_mutex_lock(&h->mu);
	h->releases++;
	h->fail_until_release = false;
	pthread_mutex_unlock(&h->mu);
	return __real_storage_release_ballast(st, em);
}

enum err __wrap_storage_restore_ballast(struct storage *st, struct errmsg *em)
{
	struct hooks *h = hooks_of(st);
	pthread_mutex_lock(&h->mu);
	h->restores++;
	pthread_mutex_unlock(&h->mu);
	return __real_storage_restore_ballast(st, em);
}

void __wrap_core_step(struct core *c, const struct core_event *event)
{
	if (hooks_on_step)
		hooks_on_step(c, event);
	__real_core_step(c, event);
}

enum err __wrap_storage_snapshot_write(struct storage_snapshot_writer *w, uint64_t number, struct slice chunk, struct errmsg *em)
{
	if (hooks_on_snapshot_write)
		hooks_on_snapshot_write(number);
	return __real_storage_snapshot_write(w, number, chunk, em);
}

void __wrap_snap_queue_task(struct snap *s, struct task *t)
{
	__real_snap_queue_task(s, t);
	if (hooks_on_task)
		hooks_on_task();
}
