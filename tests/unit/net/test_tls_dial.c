/* test_tls_dial.c: links that we open under TLS, and certificates of our own making. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "net_test.h"
#include <openssl/x509v3.h>
#include "net/tls_dial.h"
#include "net/tls_internal.h"
#include "tls_desk.h"

/* ---- self-made ---- */

static struct tls_key made_at(const struct tls_config *c, int64_t now)
{
	struct tls_key k;
	struct errmsg em = { .text = "" };
	ck_assert_msg(tls_self_make(c, now, &k, &em) == ERR_OK, "%s", em.text);
	return k;
}

START_TEST(self__is_kept_and_made_anew_before_it_expires)
{
	static const char *const hosts[] = { "localhost", "127.0.0.1", "::1", "node-1.example" };
	struct tls_config c = { .name = "test", .self_dir = kit_path("deep/er"), .self_validity_s = 90 * 86400, .self_hosts = hosts, .self_hosts_len = 4 };
	int64_t now = (int64_t)time(NULL);
	struct tls_key a = made_at(&c, now), b = made_at(&c, now + 59 * 86400), later;
	struct stat st;
	char key[200];
	ck_assert_int_eq(X509_cmp(a.cert, b.cert), 0);
	ck_assert_int_eq(X509_check_host(a.cert, "node-1.example", 0, 0, NULL), 1);
	ck_assert_int_eq(X509_check_ip_asc(a.cert, "::1", 0), 1);
	snprintf(key, sizeof(key), "%s/key.pem", c.self_dir);
	ck_assert_int_eq(stat(key, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	later = made_at(&c, now + 61 * 86400);
	ck_assert_int_ne(X509_cmp(a.cert, later.cert), 0);
	ck_assert_int_gt(tls_time_of(X509_get0_notAfter(later.cert)), now + 150 * 86400);
	tls_key_clear(&b);
	b = made_at(&c, now + 62 * 86400);
	ck_assert_int_eq(X509_cmp(b.cert, later.cert), 0);
	/* Other hosts: another certificate. */
	c.self_hosts_len = 3;
	tls_key_clear(&b);
	b = made_at(&c, now + 62 * 86400);
	ck_assert_int_eq(X509_cmp(b.cert, later.cert), 0);
	c.self_hosts = (const char *const[]){ "elsewhere" };
	c.self_hosts_len = 1;
	tls_key_clear(&b);
	b = made_at(&c, now + 62 * 86400);
	ck_assert_int_ne(X509_cmp(b.cert, later.cert), 0);
	tls_key_clear(&a);
	tls_key_clear(&b);
	tls_key_clear(&later);
}
END_TEST

START_TEST(self__is_renewed_while_it_serves)
{
	struct tls_config usual_config = config;
	struct kit_client_spec spec = { .max_version = 0 };
	struct kit_client c;
	struct desk d;
	int64_t first;
	/* Three seconds: once two have passed, a handshake makes the next. */
	config = (struct tls_config){ .name = "test", .self_validity_s = 3 };
	desk_open(&d, usual, true, true);
	first = tls_context_figures(d.tls).not_after;
	ck_assert(TEST_WAIT(10000, (kit_client_open(&c, d.port, &spec), kit_client_close(&c), tls_context_figures(d.tls).not_after > first)));
	ck_assert_int_lt((int64_t)time(NULL), first + 5);
	ck_assert_uint_ge(tls_context_figures(d.tls).reloads, 1);
	desk_close(&d);
	config = usual_config;
}
END_TEST

/* ---- links ---- */

static struct {
	const char *what, *host, *name;
	bool revoked, other_ca, allowed;
	bool open;
} links[] = {
	{ "all in order", "127.0.0.1", "127.0.0.1", false, false, false, true },
	{ "by name", "localhost", "localhost", false, false, false, true },
	{ "another host's certificate", "127.0.0.1", "127.0.0.2", false, false, false, false },
	{ "another name's", "127.0.0.1", "example", false, false, false, false },
	{ "revoked", "127.0.0.1", "127.0.0.1", true, false, false, false },
	{ "of a CA that we do not know", "127.0.0.1", "127.0.0.1", false, true, false, false },
	{ "not one of the names that are allowed", "127.0.0.1", "127.0.0.1", false, false, true, false },
};

START_TEST(dial__believes_only_what_is_in_order)
{
	struct kit_ca other = kit_ca_new("other");
	struct tls_config mine = config;
	struct tls_context *t;
	struct tls_dialer *dialer;
	struct desk d;
	char port[8];
	int fd;
	desk_open(&d, usual, true, true);
	kit_crl(&ca, "mine.crl", links[_i].revoked ? 2 : 0, -60, 3600); /* 2: the server's */
	kit_ca_write(&other, "other.pem");
	mine.crl_file = links[_i].other_ca ? NULL : kit_path("mine.crl");
	mine.ca_file = links[_i].other_ca ? kit_path("other.pem") : config.ca_file;
	mine.allowed_cns = links[_i].allowed ? "somebody" : NULL;
	mine.cert_file = kit_path("alice.pem");
	mine.key_file = kit_path("alice.key");
	t = context_of(&mine);
	dialer = tls_dialer_new(t, 3000);
	snprintf(port, sizeof(port), "%u", d.port);
	fd = tls_dialer_dial(dialer, links[_i].host, port, links[_i].name);
	ck_assert_int_ge(fd, 0);
	if (links[_i].open) {
		test_write(fd, PREFACE); /* at once: it waits for the handshake */
		ck_assert(TEST_WAIT(5000, count(&d, &d.http2) == 1));
		ck_assert(slice_eq(d.who->common_name, slice_of_str("alice")));
		expect(d.fd, PREFACE);
		test_write(d.fd, "pong");
		expect(fd, "pong");
		ck_assert_uint_eq(tls_context_figures(t).handshakes, 1);
	} else {
		ck_assert_msg(test_closed_within(fd, 5000), "%s", links[_i].what);
		ck_assert_uint_eq(count(&d, &d.http2), 0);
		ck_assert(TEST_WAIT(5000, tls_context_figures(t).handshakes_failed == 1));
	}
	close(fd);
	tls_dialer_free(dialer);
	tls_context_free(t);
	desk_close(&d);
	kit_ca_free(&other);
}
END_TEST

/* A Unix socket's path stands where a host does; one that is too long is nobody's. */
START_TEST(dial__goes_to_a_path)
{
	struct tls_context *t = context_of(&config);
	struct tls_dialer *dialer = tls_dialer_new(t, 5000);
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fd, peer;
	char hello, longer[200];
	snprintf(un.sun_path, sizeof(un.sun_path), "%s", kit_path("listener"));
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&un, sizeof(un)), 0);
	ck_assert_int_eq(listen(listener, 8), 0);
	fd = tls_dialer_dial(dialer, un.sun_path, "", "localhost");
	peer = accept(listener, NULL, NULL);
	ck_assert_int_ge(peer, 0);
	ck_assert_int_eq(read(peer, &hello, 1), 1);
	ck_assert_int_eq(hello, 0x16);
	close(peer);
	ck_assert(test_closed_within(fd, 5000));
	close(fd);
	snprintf(longer, sizeof(longer), "/%0150d", 0);
	fd = tls_dialer_dial(dialer, longer, "", "localhost");
	ck_assert(test_closed_within(fd, 5000));
	close(fd);
	close(listener);
	tls_dialer_free(dialer);
	tls_context_free(t);
}
END_TEST

START_TEST(dial__gives_up)
{
	struct tls_context *t = context_of(&config);
	struct tls_dialer *dialer = tls_dialer_new(t, 400);
	char port[8];
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
	uint64_t began = test_now_ms();
	/* Nobody there. */
	snprintf(port, sizeof(port), "%u", test_free_port());
	fd = tls_dialer_dial(dialer, "127.0.0.1", port, "127.0.0.1");
	ck_assert(test_closed_within(fd, 5000));
	close(fd);
	/* The kernel connects, and nobody says a word. */
	ck_assert_int_eq(listen(listener, 8), 0);
	snprintf(port, sizeof(port), "%u", test_local_port(listener));
	fd = tls_dialer_dial(dialer, "127.0.0.1", port, "127.0.0.1");
	ck_assert(test_closed_within(fd, 10000));
	ck_assert_uint_ge(test_now_ms() - began, 400);
	close(fd);
	/* The end does not wait for a dial. */
	tls_dialer_free(dialer);
	dialer = tls_dialer_new(t, 60000);
	fd = tls_dialer_dial(dialer, "127.0.0.1", port, "127.0.0.1");
	began = test_now_ms();
	tls_dialer_free(dialer);
	ck_assert_uint_lt(test_now_ms() - began, 10000);
	ck_assert(test_closed_within(fd, 5000));
	close(fd);
	close(listener);
	tls_context_free(t);
}
END_TEST

#define LEN(a) ((int)(sizeof(a) / sizeof((a)[0])))

static void add_tests(TCase *c)
{
	tcase_add_test(c, self__is_kept_and_made_anew_before_it_expires);
	tcase_add_test(c, self__is_renewed_while_it_serves);
	tcase_add_loop_test(c, dial__believes_only_what_is_in_order, 0, LEN(links));
	tcase_add_test(c, dial__goes_to_a_path);
	tcase_add_test(c, dial__gives_up);
}

int main(void)
{
	return desk_run("tls_dial", add_tests);
}
