/* test_url.c: which URLs are taken, and how they come apart. */
#include <check.h>
#include <stdlib.h>

#include "net/url.h"

static const struct {
	const char *what, *url, *host, *port; /* host NULL: refused */
} cases[] = {
	{ "an address", "http://127.0.0.1:2379", "127.0.0.1", "2379" },
	{ "a name", "http://node-1.example:2380", "node-1.example", "2380" },
	{ "one slash may follow", "http://localhost:1/", "localhost", "1" },
	{ "the highest port", "http://a:65535", "a", "65535" },
	{ "IPv6 comes out of its brackets", "http://[::1]:2379", "::1", "2379" },
	{ "IPv6, slash", "http://[fe80::1]:2379/", "fe80::1", "2379" },
	{ "a path", "http://a:1/x", NULL, NULL },
	{ "another scheme", "https://a:1", NULL, NULL },
	{ "a socket's path", "unix://a", NULL, NULL },
	{ "no scheme", "a:1", NULL, NULL },
	{ "no port", "http://a", NULL, NULL },
	{ "an empty port", "http://a:", NULL, NULL },
	{ "an empty port, slash", "http://a:/", NULL, NULL },
	{ "no host", "http://:2379", NULL, NULL },
	{ "an empty address", "http://[]:2379", NULL, NULL },
	{ "port 0", "http://a:0", NULL, NULL },
	{ "a port too high", "http://a:65536", NULL, NULL },
	{ "a port that is long", "http://a:00000000080", NULL, NULL },
	{ "a port with a sign", "http://a:+1", NULL, NULL },
	{ "a port that is a word", "http://a:http", NULL, NULL },
	{ "IPv6 without brackets", "http://::1:2379", NULL, NULL },
	{ "a bracket that stays open", "http://[::1:2379", NULL, NULL },
	{ "IPv6 without a port", "http://[::1]", NULL, NULL },
	{ "a name too long", "http://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:1", NULL, NULL },
	{ "nothing", "", NULL, NULL },
};

START_TEST(url__comes_apart_or_is_refused)
{
	char host[32] = "", port[8] = "";
	bool ok = url_split(cases[_i].url, host, sizeof(host), port, sizeof(port));
	ck_assert_msg(ok == (cases[_i].host != NULL), "%s", cases[_i].what);
	if (ok) {
		ck_assert_str_eq(host, cases[_i].host);
		ck_assert_str_eq(port, cases[_i].port);
	}
}
END_TEST

START_TEST(url__listening_takes_any_free_port)
{
	char host[32], port[8];
	ck_assert(url_split_listen("http://127.0.0.1:0", host, sizeof(host), port, sizeof(port)));
	ck_assert_str_eq(port, "0");
	ck_assert(!url_split_listen("http://:0", host, sizeof(host), port, sizeof(port)));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("url");
	TCase *c = tcase_create("url");
	SRunner *r;
	int failed;
	tcase_add_loop_test(c, url__comes_apart_or_is_refused, 0, sizeof(cases) / sizeof(cases[0]));
	tcase_add_test(c, url__listening_takes_any_free_port);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
