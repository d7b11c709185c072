/* test_credentials.c: passwords, signed tokens and the audit log, whatever they are fed. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "auth/audit.h"
#include "auth/password.h"
#include "auth/signed_token.h"
#include "base/mem.h"
#include "base/rng.h"

/* ---- passwords ---- */

struct waited {
	struct password_job job;
	pthread_mutex_t mu;
	pthread_cond_t over;
	bool done;
};

static void on_done(struct password_job *job)
{
	struct waited *w = CONTAINER_OF(job, struct waited, job);
	pthread_mutex_lock(&w->mu);
	w->done = true;
	pthread_cond_signal(&w->over);
	pthread_mutex_unlock(&w->mu);
}

static void run(struct passwords *p, struct waited *w, struct slice password, struct slice hash, bool compare)
{
	*w = (struct waited){ .mu = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER };
	w->job.password = buf_copy_of(password);
	w->job.hash = buf_copy_of(hash);
	w->job.compare = compare;
	w->job.done = on_done;
	ck_assert_int_eq(passwords_submit(p, &w->job), ERR_OK);
	pthread_mutex_lock(&w->mu);
	while (!w->done)
		pthread_cond_wait(&w->over, &w->mu);
	pthread_mutex_unlock(&w->mu);
	ck_assert_uint_eq(w->job.password.len, 0); /* wiped */
}

static bool compares(struct passwords *p, struct slice password, struct slice hash)
{
	struct waited w;
	run(p, &w, password, hash, true);
	buf_free(&w.job.hash);
	return w.job.right;
}

START_TEST(password__is_not_taken_for_another)
{
	struct passwords *p = passwords_new(4);
	struct slice hash = slice_of_str("$2a$04$abcdefghijklmnopqrstuuBX9pzlJzKRzDVe2Jn/4Zkf0bvMLLv0S");
	struct waited w;
	run(p, &w, slice_of_str("secret"), slice_of(NULL, 0), false);
	ck_assert(password_hash_is_known(buf_view(&w.job.hash)));
	buf_free(&w.job.hash);
	ck_assert(!compares(p, slice_of_str("another"), hash));
	ck_assert(!compares(p, slice_of_str(""), hash));
	ck_assert(!compares(p, slice_of("secret\0x", 8), hash));
	ck_assert(!compares(p, slice_of_str("secret"), slice_of(NULL, 0)));
	ck_assert(!compares(p, slice_of_str("secret"), slice_of_str("$2b$04$short")));
	ck_assert(!compares(p, slice_of_str("secret"), slice_of_str("*************************************************************")));
	passwords_free(p);
}
END_TEST

START_TEST(password__what_may_be_set)
{
	char long_one[74] = "";
	memset(long_one, 'x', 73);
	ck_assert_ptr_null(password_objection(slice_of_str("x")));
	ck_assert_ptr_null(password_objection(slice_of(long_one, 72)));
	ck_assert_ptr_nonnull(password_objection(slice_of(long_one, 73)));
	ck_assert_ptr_nonnull(password_objection(slice_of("", 0)));
	ck_assert_ptr_nonnull(password_objection(slice_of("a\0b", 3)));
	ck_assert(!password_hash_is_known(slice_of_str("")));
	ck_assert(!password_hash_is_known(slice_of_str("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")));
}
END_TEST

/* ---- signed tokens ---- */

static struct signed_tokens *hs256(void)
{
	struct signed_tokens *t = NULL;
	struct errmsg em;
	char path[] = "/tmp/holdfast-secret-XXXXXX", options[128];
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "a secret of more than enough bytes", 34), 34);
	close(fd);
	snprintf(options, sizeof(options), "priv-key=%s,sign-method=HS256,ttl=1m", path);
	ck_assert_int_eq(signed_tokens_new(options, &t, &em), ERR_OK);
	unlink(path);
	return t;
}

static enum err verify(struct signed_tokens *t, struct slice token, int64_t now_s)
{
	struct buf user = { .ptr = NULL };
	uint64_t revision = 0;
	enum err e = signed_tokens_verify(t, token, now_s, &user, &revision);
	if (!e) {
		ck_assert(slice_eq(buf_view(&user), slice_of_str("alice")));
		ck_assert_uint_eq(revision, 7);
	}
	buf_free(&user);
	return e;
}

START_TEST(token__good_until_it_expires)
{
	struct signed_tokens *t = hs256();
	struct buf token = { .ptr = NULL };
	ck_assert_int_eq(signed_tokens_sign(t, slice_of_str("alice"), 7, 1000, &token), ERR_OK);
	ck_assert_int_eq(verify(t, buf_view(&token), 1000), ERR_OK);
	ck_assert_int_eq(verify(t, buf_view(&token), 1059), ERR_OK);
	ck_assert_int_eq(verify(t, buf_view(&token), 1060), ERR_AUTH_INVALID_TOKEN); /* kept as good, and looked at again all the same */
	buf_free(&token);
	signed_tokens_free(t);
}
END_TEST

/* One change anywhere is one too many. */
START_TEST(token__no_other_is_good)
{
	struct signed_tokens *t = hs256();
	struct buf token = { .ptr = NULL };
	struct rng rng;
	rng_init(&rng, (uint64_t)_i + 1);
	ck_assert_int_eq(signed_tokens_sign(t, slice_of_str("alice"), 7, 1000, &token), ERR_OK);
	for (int i = 0; i < 5000; i++) {
		struct buf b = buf_copy_of(buf_view(&token));
		for (uint64_t k = rng_between(&rng, 1, 4); k > 0; k--) {
			size_t at = rng_below(&rng, b.len);
			if (rng_below(&rng, 4) == 0)
				b.len = at + 1;
			else
				b.ptr[at] = rng_below(&rng, 2) ? (uint8_t)rng_next(&rng) : (uint8_t)".eyJ0-_A"[rng_below(&rng, 8)];
		}
		/* The last digit has bits that mean nothing. */
		if (b.len != token.len || memcmp(b.ptr, token.ptr, token.len - 1) != 0)
			ck_assert_int_eq(verify(t, buf_view(&b), 1000), ERR_AUTH_INVALID_TOKEN);
		buf_free(&b);
	}
	for (size_t len = 0; len < token.len; len++)
		ck_assert_int_eq(verify(t, slice_of(token.ptr, len), 1000), ERR_AUTH_INVALID_TOKEN);
	buf_free(&token);
	signed_tokens_free(t);
}
END_TEST

START_TEST(token__options_that_make_no_sense)
{
	static const char *const options[] = { "", "sign-method=HS256", "priv-key=/nowhere,sign-method=HS256", "priv-key=/dev/null,sign-method=HS256", "x",
					       "sign-method=none,priv-key=/etc/hostname", "priv-key=/etc/hostname,sign-method=RS256", "ttl=x",
					       "ttl=0s", "priv-key=/etc/hostname,sign-method=HS256,ttl=-1m", ",", "=" };
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		struct signed_tokens *t = NULL;
		struct errmsg em = { .text = "" };
		ck_assert_msg(signed_tokens_new(options[i], &t, &em) != ERR_OK && em.text[0], "'%s'", options[i]);
	}
}
END_TEST

/* ---- the audit log ---- */

START_TEST(audit__strings_are_json)
{
	static const struct {
		struct slice in;
		const char *out;
	} cases[] = {
		{ { (const uint8_t *)"plain", 5 }, "\"plain\"" },
		{ { (const uint8_t *)"a\"\\\n\0z", 6 }, "\"a\\\"\\\\\\u000a\\u0000z\"" },
		{ { (const uint8_t *)"\xc3\xa9\xff\xc3", 4 }, "\"\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ { (const uint8_t *)"\xed\xa0\x80", 3 }, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ { NULL, 0 }, "\"\"" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buf b = { .ptr = NULL };
		audit_json_string(&b, cases[i].in);
		ck_assert_msg(slice_eq(buf_view(&b), slice_of_str(cases[i].out)), "%zu: %.*s", i, (int)b.len, b.ptr);
		buf_free(&b);
	}
}
END_TEST

/* Nothing can be written: lines are counted and nobody waits. */
START_TEST(audit__a_full_disk_loses_lines_and_says_so)
{
	struct audit *a;
	struct errmsg em;
	ck_assert_int_eq(audit_open("/nowhere/at/all", &a, &em), ERR_IO);
	if (access("/dev/full", W_OK) != 0)
		return;
	ck_assert_int_eq(audit_open("/dev/full", &a, &em), ERR_OK);
	for (int i = 0; i < 100; i++) {
		struct buf line = buf_copy_of(slice_of_str("{}"));
		audit_line(a, &line);
		ck_assert_uint_eq(line.len, 0);
	}
	while (audit_dropped(a) < 100)
		usleep(1000);
	audit_close(a);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("credentials");
	TCase *t = tcase_create("credentials");
	SRunner *r = srunner_create(s);
	int failed;
	tcase_set_timeout(t, 60);
	tcase_add_test(t, password__is_not_taken_for_another);
	tcase_add_test(t, password__what_may_be_set);
	tcase_add_test(t, token__good_until_it_expires);
	tcase_add_loop_test(t, token__no_other_is_good, 0, 4);
	tcase_add_test(t, token__options_that_make_no_sense);
	tcase_add_test(t, audit__strings_are_json);
	tcase_add_test(t, audit__a_full_disk_loses_lines_and_says_so);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
