/* test_url.c: which URLs are taken, and how they come apart. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "net/url.h"

static const struct {
	const char *what, *url, *host, *port, *path; /* host and path NULL: refused */
} cases[] = {
	{ "an address", "http://127.0.0.1:2379", "127.0.0.1", "2379", "" },
	{ "a name", "http://node-1.example:2380", "node-1.example", "2380", "" },
	{ "TLS", "https://node-1.example:2380", "node-1.example", "2380", "" },
	{ "one slash may follow", "http://localhost:1/", "localhost", "1", "" },
	{ "the highest port", "http://a:65535", "a", "65535", "" },
	{ "IPv6 comes out of its brackets", "http://[::1]:2379", "::1", "2379", "" },
	{ "IPv6, slash", "http://[fe80::1]:2379/", "fe80::1", "2379", "" },
	{ "IPv6 with its scope", "http://[fe80::1%eth0]:2379", "fe80::1%eth0", "2379", "" },
	{ "the scope as within URLs", "http://[fe80::1%25eth0]:2379", "fe80::1%eth0", "2379", "" },
	{ "any free port", "http://127.0.0.1:0", "127.0.0.1", "0", "" },
	{ "a socket's path", "unix:///run/h.sock", "", "", "/run/h.sock" },
	{ "a socket as etcd names it", "unix://localhost:2379", "", "", "localhost:2379" },
	{ "a socket with TLS", "unixs:///run/h.sock", "", "", "/run/h.sock" },
	{ "an empty scope", "http://[fe80::1%]:2379", NULL, NULL, NULL },
	{ "an empty scope, as within URLs", "http://[fe80::1%25]:2379", NULL, NULL, NULL },
	{ "a scope alone", "http://[%eth0]:2379", NULL, NULL, NULL },
	{ "no path", "unix://", NULL, NULL, NULL },
	{ "a path that is too long",
	  "unix:///aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", NULL, NULL, NULL },
	{ "a path", "http://a:1/x", NULL, NULL, NULL },
	{ "another scheme", "ftp://a:1", NULL, NULL, NULL },
	{ "no scheme", "a:1", NULL, NULL, NULL },
	{ "no port", "http://a", NULL, NULL, NULL },
	{ "an empty port", "http://a:", NULL, NULL, NULL },
	{ "an empty port, slash", "http://a:/", NULL, NULL, NULL },
	{ "no host", "http://:2379", NULL, NULL, NULL },
	{ "an empty address", "http://[]:2379", NULL, NULL, NULL },
	{ "a port too high", "http://a:65536", NULL, NULL, NULL },
	{ "a port that is long", "http://a:00000000080", NULL, NULL, NULL },
	{ "a port with a sign", "http://a:+1", NULL, NULL, NULL },
	{ "a port that is a word", "http://a:http", NULL, NULL, NULL },
	{ "IPv6 without brackets", "http://::1:2379", NULL, NULL, NULL },
	{ "a bracket that stays open", "http://[::1:2379", NULL, NULL, NULL },
	{ "IPv6 without a port", "http://[::1]", NULL, NULL, NULL },
	{ "nothing", "", NULL, NULL, NULL },
};

START_TEST(url__comes_apart_or_is_refused)
{
	struct url u;
	bool ok = url_parse(cases[_i].url, &u);
	ck_assert_msg(ok == (cases[_i].host != NULL), "%s", cases[_i].what);
	if (ok) {
		ck_assert_str_eq(u.host, cases[_i].host);
		ck_assert_str_eq(u.port, cases[_i].port);
		ck_assert_str_eq(u.path, cases[_i].path);
	}
}
END_TEST

START_TEST(url__a_name_that_is_too_long_is_refused)
{
	char text[400] = "http://";
	struct url u;
	for (size_t i = 7; i < 7 + 256; i++)
		text[i] = 'a';
	strcpy(text + 7 + 256, ":1");
	ck_assert(!url_parse(text, &u));
	strcpy(text + 7 + 255, ":1");
	ck_assert(url_parse(text, &u));
}
END_TEST

START_TEST(url__says_what_it_is)
{
	struct url u;
	ck_assert(url_parse("unixs:///s", &u) && url_is_tls(&u) && url_is_unix(&u) && url_is_dialable(&u));
	ck_assert(url_parse("https://a:1", &u) && url_is_tls(&u) && !url_is_unix(&u) && url_is_dialable(&u));
	ck_assert(url_parse("http://a:0", &u) && !url_is_tls(&u) && !url_is_dialable(&u));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("url");
	TCase *c = tcase_create("url");
	SRunner *r;
	int failed;
	tcase_add_loop_test(c, url__comes_apart_or_is_refused, 0, sizeof(cases) / sizeof(cases[0]));
	tcase_add_test(c, url__a_name_that_is_too_long_is_refused);
	tcase_add_test(c, url__says_what_it_is);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
