/* lock_stories.c: tells the stories of testdata/ to the index of contenders, over a real store.
 *
 *   lock_stories [--rewrite] FILE...
 *
 * Each line of a block is a write of its own, at a revision of its own; after a first line "together" all lines share one. What became
 * held by a block is told below it.
 *
 *   lock NAME LEASE [shared] [call=N] [try | wait=MS]   as a Lock call does it
 *   put KEY [LEASE]                                     as anybody may write
 *   delete KEY
 *   end LEASE                                           the lease ends, and its keys go with it
 *   abandon KEY call=N                                  the call gives up waiting
 *   queue NAME                                          who holds, who waits and for whom
 *   reload                                              all replicated state is encoded, decoded and indexed anew */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "fixture.h"
#include "story.h"

struct teller {
	struct fixture f;
	struct buf *out;
};

#define S(slice) (int)(slice).len, (const char *)(slice).ptr

static bool is(struct slice word, const char *text)
{
	return slice_eq(word, slice_of_str(text));
}

static int64_t number(struct slice word)
{
	char text[32] = { 0 };

	ASSERT(word.len < sizeof(text));
	if (word.len)
		memcpy(text, word.ptr, word.len);
	return strtoll(text, NULL, 10);
}

/* The value of a word "name=value". */
static bool has_value(struct slice word, const char *name, int64_t *ret)
{
	size_t len = strlen(name);

	if (!slice_starts_with(word, slice_of_str(name)) || word.len <= len || word.ptr[len] != '=')
		return false;
	*ret = number(slice_of(word.ptr + len + 1, word.len - len - 1));
	return true;
}

static void tell_place(struct teller *t, const struct contender *c)
{
	const struct contender *other = lock_waits_for(t->f.locks, c);

	if (other)
		buf_printf(t->out, "waits for %.*s", S(contender_key(other)));
	else
		buf_printf(t->out, "holds");
}

static void tell_err(struct teller *t, enum err e)
{
	buf_printf(t->out, "%s\n", e ? err_name(e) : "ok");
}

/* ---- commands ---- */

static void do_lock(struct teller *t, struct slice args)
{
	struct slice name = story_word(&args), word;
	lease_id lease = number(story_word(&args));
	struct lock_attributes a = { .call = { 1, 1, 0 } };
	struct buf key = { 0 };
	int64_t v;
	enum err e;

	while ((word = story_word(&args)).len) {
		if (is(word, "shared"))
			a.mode = LOCK_SHARED;
		else if (is(word, "try"))
			a.bounded = true;
		else if (has_value(word, "wait", &a.wait_ms))
			a.bounded = true;
		else if (has_value(word, "call", &v))
			a.call.call = (uint64_t)v;
		else
			buf_printf(t->out, "what is %.*s?\n", S(word));
	}
	e = fixture_lock(&t->f, name, lease, &a);
	lock_key(name, lease, &key);
	if (e) {
		tell_err(t, e);
	} else {
		buf_printf(t->out, "%.*s ", S(key));
		tell_place(t, fixture_find(&t->f, buf_view(&key)));
		buf_printf(t->out, "\n");
	}
	buf_free(&key);
}

static void do_put(struct teller *t, struct slice args)
{
	struct slice key = story_word(&args);

	tell_err(t, fixture_put(&t->f, key, number(story_word(&args))));
}

static void do_delete(struct teller *t, struct slice args)
{
	buf_printf(t->out, "%s\n", fixture_delete(&t->f, story_word(&args)) ? "ok" : "no such key");
}

static void do_abandon(struct teller *t, struct slice args)
{
	struct slice key = story_word(&args);
	int64_t call = 0;

	has_value(story_word(&args), "call", &call);
	buf_printf(t->out, "%s\n", fixture_abandon(&t->f, key, (struct call_id){ 1, 1, (uint64_t)call }) ? "gone" : "a later call asked again");
}

struct keys_of {
	lease_id lease;
	struct buf keys; /* length, bytes */
};

static bool collect_key(void *ctx, const struct kv *kv)
{
	struct keys_of *k = ctx;

	if (kv->lease == k->lease) {
		buf_append(&k->keys, &kv->key_len, sizeof(kv->key_len));
		buf_append_slice(&k->keys, kv_key(kv));
	}
	return true;
}

static void do_end(struct teller *t, struct slice args)
{
	struct keys_of k = { .lease = number(story_word(&args)) };
	struct store_range all = { .key = slice_of("", 1), .end = slice_of("", 1) };
	bool own = !t->f.in_txn;
	uint32_t len;

	store_walk(t->f.store, all, collect_key, &k);
	if (own)
		fixture_txn_begin(&t->f);
	for (size_t at = 0; at < k.keys.len; at += len) {
		memcpy(&len, k.keys.ptr + at, sizeof(len));
		at += sizeof(len);
		buf_printf(t->out, "%.*s goes\n", (int)len, (const char *)k.keys.ptr + at);
		fixture_delete(&t->f, slice_of(k.keys.ptr + at, len));
	}
	if (own)
		fixture_txn_end(&t->f);
	buf_free(&k.keys);
}

static void do_queue(struct teller *t, struct slice args)
{
	struct slice name = story_word(&args);
	const struct contender *c = NULL;

	while ((c = lock_next(t->f.locks, name, c))) {
		buf_printf(t->out, "%.*s %s, token %" PRId64 ", ", S(contender_key(c)), c->mode == LOCK_SHARED ? "shared" : "exclusive", c->create_revision);
		tell_place(t, c);
		if (c->call.call)
			buf_printf(t->out, ", call %" PRIu64, c->call.call);
		if (c->bounded)
			buf_printf(t->out, ", for %" PRId64 " ms", c->wait_ms);
		buf_printf(t->out, "\n");
	}
	buf_printf(t->out, "%" PRIu64 " waiting\n", lock_waiters(t->f.locks, name));
}

static void do_reload(struct teller *t, struct slice args)
{
	(void)args;
	fixture_reload(&t->f);
	buf_printf(t->out, "ok\n");
}

/* ---- blocks ---- */

static void tell_granted(struct teller *t)
{
	const struct contender *granted[3]; /* few, so that stories see them taken in pieces */
	size_t n;

	while ((n = lock_take_granted(t->f.locks, granted, 3)))
		for (size_t i = 0; i < n; i++)
			buf_printf(t->out, "granted: %.*s, token %" PRId64 "\n", S(contender_key(granted[i])), granted[i]->create_revision);
}

static void run_line(struct teller *t, struct slice line)
{
	static const struct {
		const char *word;
		void (*run)(struct teller *t, struct slice args);
	} commands[] = { { "lock", do_lock }, { "put", do_put }, { "delete", do_delete }, { "end", do_end }, { "abandon", do_abandon },
		{ "queue", do_queue }, { "reload", do_reload } };
	struct slice word = story_word(&line);

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (is(word, commands[i].word)) {
			commands[i].run(t, line);
			return;
		}
	}
	buf_printf(t->out, "what is %.*s?\n", S(word));
}

static void run_block(void *ctx, struct slice input, struct buf *output)
{
	struct teller *t = ctx;
	struct slice rest = input, line;
	bool together = slice_starts_with(input, slice_of_str("together\n"));

	t->out = output;
	if (together) {
		story_line(&rest, &line);
		fixture_txn_begin(&t->f);
	}
	while (story_line(&rest, &line))
		run_line(t, line);
	if (together)
		fixture_txn_end(&t->f);
	tell_granted(t);
	locks_check(t->f.locks);
}

int main(int argc, char **argv)
{
	bool rewrite = argc > 1 && strcmp(argv[1], "--rewrite") == 0;
	int failed = 0;

	for (int i = rewrite ? 2 : 1; i < argc; i++) {
		struct teller t = { 0 };

		fixture_init(&t.f);
		failed += story_file(argv[i], rewrite, run_block, &t) != 0;
		fixture_deinit(&t.f);
	}
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
