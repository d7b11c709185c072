/* driver.c: runs a target over files and over damaged seeds. NAME [--rounds N] [--seed S] [--keep FILE] [FILE or DIRECTORY]...
 *
 * A crash leaves the input that made it in FILE (crash-NAME in the working directory) and says how to see it again. */
#include "driver.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "support/scale.h"

#ifdef FUZZ_WITH_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return fuzz_target.run(data, size);
}

#else

void __sanitizer_set_death_callback(void (*fn)(void)) __attribute__((weak));

static struct slice running;
static const char *keep;
static uint64_t round_now, seed;

static void save_running(void)
{
	FILE *f = fopen(keep, "wb");
	if (f) {
		fwrite(running.ptr, 1, running.len, f);
		fclose(f);
	}
	fprintf(stderr, "%s: input of %zu bytes, round %llu of seed %llu, is kept in %s: give it as an argument to see it again\n", fuzz_target.name, running.len,
		(unsigned long long)round_now, (unsigned long long)seed, keep);
}

static void on_signal(int sig)
{
	save_running();
	signal(sig, SIG_DFL);
	raise(sig);
}

/* In a block of its very size, so that a sanitizer sees every step too far. */
static void run(struct slice bytes)
{
	uint8_t *exact = mem_alloc(bytes.len ? bytes.len : 1);
	if (bytes.len)
		memcpy(exact, bytes.ptr, bytes.len);
	running = slice_of(exact, bytes.len);
	fuzz_target.run(exact, bytes.len);
	free(exact);
}

static struct buf contents(const char *path)
{
	struct buf b = { .ptr = NULL };
	uint8_t piece[65536];
	FILE *f = fopen(path, "rb");
	size_t n;
	while (f && (n = fread(piece, 1, sizeof(piece), f)) > 0)
		buf_append(&b, piece, n);
	if (f)
		fclose(f);
	return b;
}

static size_t replay(const char *path, struct fuzz_corpus *corpus)
{
	DIR *d = opendir(path);
	struct dirent *e;
	char inner[4096];
	size_t n = 0;
	struct buf b;
	if (d) {
		while ((e = readdir(d))) {
			if (e->d_name[0] == '.')
				continue;
			snprintf(inner, sizeof(inner), "%s/%s", path, e->d_name);
			n += replay(inner, corpus);
		}
		closedir(d);
		return n;
	}
	b = contents(path);
	run(buf_view(&b));
	corpus_add(corpus, buf_view(&b));
	buf_free(&b);
	return 1;
}

static void damaged_round(struct rng *rng, const struct fuzz_corpus *corpus)
{
	const struct buf *from = &corpus->at[rng_below(rng, corpus->len)], *other = &corpus->at[rng_below(rng, corpus->len)];
	struct buf b = buf_copy_of(buf_view(from));
	for (uint64_t n = 1 + rng_below(rng, 4); n; n--)
		fuzz_target.mutate(rng, &b, buf_view(other));
	run(buf_view(&b));
	buf_free(&b);
}

static void watch_for_crashes(const char *path)
{
	static char fallback[64];
	snprintf(fallback, sizeof(fallback), "crash-%s", fuzz_target.name);
	keep = path ? path : fallback;
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(save_running);
	signal(SIGABRT, on_signal);
	if (!__sanitizer_set_death_callback)
		signal(SIGSEGV, on_signal);
}

int main(int argc, char **argv)
{
	struct fuzz_corpus corpus = { .len = 0 };
	uint64_t rounds = test_scaled((size_t)fuzz_target.rounds);
	size_t files = 0, seeds;
	const char *path = NULL;
	struct rng rng;
	seed = 1;
	for (int i = 1; i + 1 < argc; i++) {
		if (strcmp(argv[i], "--keep") == 0)
			path = argv[i + 1];
	}
	watch_for_crashes(path);
	for (int i = 1; i < argc; i++) {
		if (argv[i][0] == '-' && i + 1 < argc) {
			if (strcmp(argv[i], "--rounds") == 0)
				rounds = strtoull(argv[i + 1], NULL, 10);
			else if (strcmp(argv[i], "--seed") == 0)
				seed = strtoull(argv[i + 1], NULL, 10);
			else if (strcmp(argv[i], "--keep") != 0)
				return fprintf(stderr, "usage: %s [--rounds N] [--seed S] [--keep FILE] [FILE or DIRECTORY]...\n", argv[0]), 2;
			i++;
		} else {
			files += replay(argv[i], &corpus);
		}
	}
	fuzz_target.seeds(&corpus);
	seeds = corpus.len - files;
	for (size_t i = files; i < corpus.len; i++)
		run(buf_view(&corpus.at[i]));
	rng_init(&rng, seed);
	for (round_now = 1; round_now <= rounds && corpus.len; round_now++)
		damaged_round(&rng, &corpus);
	printf("%s: %zu files, %zu seeds, %llu damaged inputs\n", fuzz_target.name, files, seeds, (unsigned long long)rounds);
	for (size_t i = 0; i < corpus.len; i++)
		buf_free(&corpus.at[i]);
	free(corpus.at);
	return 0;
}

#endif

void corpus_add(struct fuzz_corpus *c, struct slice bytes)
{
	c->at = mem_realloc(c->at, (c->len + 1) * sizeof(*c->at));
	c->at[c->len++] = buf_copy_of(bytes);
}
