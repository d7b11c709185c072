/* test_tls.c: whom TLS lets in, by which certificates, and what they become; handshakes that never end. */
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
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "net_test.h"
#include "net/tls_internal.h"
#include "tls_desk.h"

/* ---- who is it ---- */

START_TEST(tls__a_client_is_who_its_certificate_says)
{
	static const struct {
		enum identity_name_kind kind;
		const char *text;
	} names[] = { { IDENTITY_DNS, "alice.example" }, { IDENTITY_IP, "2001:db8::1" }, { IDENTITY_URI, "spiffe://x/alice" }, { IDENTITY_EMAIL, "a@x.example" } };
	struct desk d;
	struct kit_client c;
	char address[64];
	desk_open(&d, usual, true, true);
	ck_assert(kit_client_open(&c, d.port, &alice));
	kit_client_write(&c, "GET / HTTP/1.1\r\n\r\n");
	ck_assert(TEST_WAIT(5000, count(&d, &d.http1) == 1));
	ck_assert(d.who->tls && d.who->certified);
	ck_assert(slice_eq(d.who->common_name, slice_of_str("alice")));
	snprintf(address, sizeof(address), "127.0.0.1:%u", test_local_port(c.fd));
	ck_assert_str_eq(d.who->address, address);
	ck_assert_uint_eq(d.who->names_len, 4);
	for (size_t i = 0; i < 4; i++) {
		ck_assert_int_eq(d.who->names[i].kind, names[i].kind);
		ck_assert(slice_eq(d.who->names[i].text, slice_of_str(names[i].text)));
	}
	expect(d.fd, "GET / HTTP/1.1\r\n\r\n");
	ck_assert_uint_eq(tls_context_figures(d.tls).handshakes, 1);
	ck_assert(fcntl(d.fd, F_GETFL) & O_NONBLOCK);
	ck_assert(fcntl(d.fd, F_GETFD) & FD_CLOEXEC);
	kit_client_close(&c);
	desk_close(&d);
}
END_TEST

START_TEST(tls__nobody_is_asked_without_a_ca)
{
	struct desk d;
	struct tls_config with = config;
	config.ca_file = NULL;
	desk_open(&d, usual, true, true);
	ck_assert(is_let_in(&d, &(struct kit_client_spec){ .ca = "ca", .host = "127.0.0.1" }));
	ck_assert(d.who->tls && !d.who->certified);
	ck_assert_uint_eq(d.who->common_name.len, 0);
	/* What a client shows unasked is nobody's name. */
	ck_assert(is_let_in(&d, &alice));
	ck_assert(!d.who->certified && d.who->common_name.len == 0);
	desk_close(&d);
	config = with;
}
END_TEST

static const char *const bad[] = { "none", "of another CA", "of its own", "expired", "not valid yet", "for servers alone" };

START_TEST(tls__bad_certificates_are_refused)
{
	struct kit_ca other = kit_ca_new("ca"); /* the same name, another key */
	struct kit_client_spec spec = { .cert = "bad" };
	struct desk d;
	desk_open(&d, usual, true, true);
	if (_i == 0)
		spec.cert = NULL;
	else
		kit_cert(_i == 1 ? &other : _i == 2 ? NULL : &ca, "bad",
			 &(struct kit_cert_spec){ .cn = "alice", .from_s = _i == 3 ? -7200 : _i == 4 ? 3600 : 0, .until_s = _i == 3 ? -60 : _i == 4 ? 7200 : 0, .server_only = _i == 5 });
	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		spec.max_version = version;
		ck_assert_msg(kit_refused(d.port, &spec), "a certificate that is %s", bad[_i]);
	}
	ck_assert_uint_eq(count(&d, &d.http1) + count(&d, &d.http2), 0);
	ck_assert(TEST_WAIT(5000, tls_context_figures(d.tls).handshakes_failed == 2));
	ck_assert(is_let_in(&d, &alice));
	desk_close(&d);
	kit_ca_free(&other);
}
END_TEST

START_TEST(tls__only_allowed_names_come_in)
{
	struct desk d;
	config.allowed_cns = "bob,alice";
	desk_open(&d, usual, true, true);
	kit_cert(&ca, "eve", &(struct kit_cert_spec){ .cn = "eve" });
	kit_cert(&ca, "nameless", &(struct kit_cert_spec){ .names = "DNS:alice" });
	ck_assert(is_let_in(&d, &alice));
	ck_assert(kit_refused(d.port, &(struct kit_client_spec){ .cert = "eve" }));
	ck_assert(kit_refused(d.port, &(struct kit_client_spec){ .cert = "nameless" }));
	desk_close(&d);
	config.allowed_cns = NULL;
	config.allowed_hosts = "h.x.example,2001:db8::1";
	desk_open(&d, usual, true, true);
	ck_assert(is_let_in(&d, &alice));
	kit_cert(&ca, "x", &(struct kit_cert_spec){ .cn = "h.x.example" }); /* a common name is no host name */
	ck_assert(kit_refused(d.port, &(struct kit_client_spec){ .cert = "x" }));
	kit_cert(&ca, "x", &(struct kit_cert_spec){ .names = "DNS:*.x.example" });
	ck_assert(is_let_in(&d, &(struct kit_client_spec){ .cert = "x" }));
	desk_close(&d);
	config.allowed_hosts = NULL;
}
END_TEST

START_TEST(tls__names_with_a_zero_byte_are_no_names)
{
	static const unsigned char evil[] = "root\0.example";
	X509 *cert = X509_new();
	X509_NAME *name = X509_NAME_new();
	struct slice cn;
	ck_assert_int_eq(X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8, evil, sizeof(evil) - 1, -1, 0), 1);
	X509_set_subject_name(cert, name);
	cn = tls_common_name(cert);
	ck_assert_uint_eq(cn.len, 0);
	/* Of several the last one counts, as for Go. */
	X509_NAME_free(name);
	name = X509_NAME_new();
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)"first", -1, -1, 0);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)"last", -1, -1, 0);
	X509_set_subject_name(cert, name);
	cn = tls_common_name(cert);
	ck_assert(slice_eq(cn, slice_of_str("last")));
	OPENSSL_free((void *)(uintptr_t)cn.ptr);
	X509_NAME_free(name);
	X509_free(cert);
}
END_TEST

/* ---- revocation ---- */

START_TEST(tls__revoked_is_refused_from_the_next_handshake_on)
{
	const char *file = _i ? "crl.der" : "crl.pem";
	long serial = kit_cert(&ca, "bob", &(struct kit_cert_spec){ .cn = "bob" });
	struct kit_client_spec bob = { .cert = "bob" };
	struct desk d;
	kit_crl(&ca, file, 0, -60, 3600);
	config.crl_file = strdup(kit_path(file));
	desk_open(&d, usual, true, true);
	ck_assert(is_let_in(&d, &bob) && is_let_in(&d, &alice));
	kit_crl(&ca, file, serial, -60, 3600);
	ck_assert(kit_refused(d.port, &bob));
	ck_assert(is_let_in(&d, &alice));
	/* A list that is out of date still counts, and keeps nobody else out. */
	kit_crl(&ca, file, serial, -7200, -3600);
	ck_assert(kit_refused(d.port, &bob));
	ck_assert(is_let_in(&d, &alice));
	ck_assert_uint_eq(tls_context_figures(d.tls).reloads, 2);
	desk_close(&d);
	free((void *)(uintptr_t)config.crl_file);
	config.crl_file = NULL;
}
END_TEST

START_TEST(tls__resumption_would_let_the_revoked_in_so_there_is_none)
{
	struct desk d;
	struct kit_client c;
	char text[16];
	desk_open(&d, usual, true, true);
	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		struct kit_client_spec spec = alice;
		size_t before = count(&d, &d.http1);
		spec.max_version = version;
		ck_assert(kit_client_open(&c, d.port, &spec));
		kit_client_write(&c, "GET");
		ck_assert(TEST_WAIT(5000, count(&d, &d.http1) > before));
		test_write(d.fd, "x");
		ck_assert_int_eq(kit_client_read(&c, text, sizeof(text)), 1); /* with it, a ticket would have come */
		ck_assert(!SSL_SESSION_has_ticket(SSL_get_session(c.ssl)));
		if (version == TLS1_2_VERSION) {
			unsigned len;
			SSL_SESSION_get_id(SSL_get_session(c.ssl), &len);
			ck_assert_uint_eq(len, 0);
		}
		kit_client_close(&c);
	}
	desk_close(&d);
}
END_TEST

/* ---- files that change ---- */

static long served_serial(struct desk *d)
{
	struct kit_client c;
	X509 *cert;
	long serial;
	ck_assert(kit_client_open(&c, d->port, &alice));
	cert = SSL_get1_peer_certificate(c.ssl);
	serial = ASN1_INTEGER_get(X509_get0_serialNumber(cert));
	X509_free(cert);
	kit_client_close(&c);
	return serial;
}

START_TEST(tls__files_are_read_anew_and_bad_ones_are_not_used)
{
	struct desk d;
	struct tls_figures f;
	long first, second;
	desk_open(&d, usual, true, true);
	first = served_serial(&d);
	second = kit_cert(&ca, "next", &(struct kit_cert_spec){ .cn = "server", .names = "DNS:localhost" });
	/* Half of the new pair: the old stays. */
	kit_copy("next.pem", "server.pem");
	ck_assert_int_eq(served_serial(&d), first);
	f = tls_context_figures(d.tls);
	ck_assert(f.stale && f.reloads_failed == 1 && f.reloads == 0);
	/* It is not tried again until something changes. */
	ck_assert_int_eq(served_serial(&d), first);
	ck_assert_uint_eq(tls_context_figures(d.tls).reloads_failed, 1);
	kit_copy("next.key", "server.key");
	ck_assert_int_eq(served_serial(&d), second);
	f = tls_context_figures(d.tls);
	ck_assert(!f.stale && f.reloads_failed == 1 && f.reloads == 1);
	/* Rubbish, emptiness and absence. */
	kit_write("ca.pem", "rubbish");
	ck_assert(is_let_in(&d, &(struct kit_client_spec){ .cert = "alice" }));
	kit_write("ca.pem", "");
	unlink(kit_path("server.pem"));
	ck_assert(is_let_in(&d, &(struct kit_client_spec){ .cert = "alice" }));
	ck_assert(tls_context_figures(d.tls).stale);
	kit_ca_write(&ca, "ca.pem");
	kit_copy("next.pem", "server.pem");
	ck_assert_int_eq(served_serial(&d), second);
	ck_assert(!tls_context_figures(d.tls).stale);
	desk_close(&d);
}
END_TEST

START_TEST(tls__another_ca_is_trusted_once_the_bundle_has_it)
{
	struct kit_ca other = kit_ca_new("other");
	struct desk d;
	desk_open(&d, usual, true, true);
	kit_cert(&other, "carol", &(struct kit_cert_spec){ .cn = "carol" });
	ck_assert(kit_refused(d.port, &(struct kit_client_spec){ .cert = "carol" }));
	kit_ca_write(&other, "ca.pem");
	ck_assert(is_let_in(&d, &(struct kit_client_spec){ .cert = "carol" }));
	ck_assert(kit_refused(d.port, &(struct kit_client_spec){ .cert = "alice" }));
	desk_close(&d);
	kit_ca_free(&other);
}
END_TEST

static const struct {
	const char *what, *cert, *key, *ca, *crl, *says;
} unusable[] = {
	{ "a certificate that is not there", "none.pem", "server.key", NULL, NULL, "No such file" },
	{ "a key that is not there", "server.pem", "none.key", NULL, NULL, "No such file" },
	{ "a key of another certificate", "server.pem", "alice.key", NULL, NULL, "is not that of the certificate" },
	{ "a key for a certificate", "server.key", "server.key", NULL, NULL, "holds no certificate" },
	{ "a certificate for a key", "server.pem", "server.pem", NULL, NULL, "holds no private key" },
	{ "a broken certificate", "broken.pem", "server.key", NULL, NULL, "not a PEM file" },
	{ "an empty CA file", "server.pem", "server.key", "empty", NULL, "holds no certificate" },
	{ "a broken list", "server.pem", "server.key", "ca.pem", "empty", "not a file of certificate revocation lists" },
	{ "a list of another CA", "server.pem", "server.key", "ca.pem", "other.crl", "none of the trusted CAs has signed" },
};

START_TEST(tls__what_cannot_be_used_is_said)
{
	struct kit_ca other = kit_ca_new("ca");
	struct tls_config c = { .name = "test" };
	struct errmsg em = { .text = "" };
	char paths[4][200];
	const char *names[4] = { unusable[_i].cert, unusable[_i].key, unusable[_i].ca, unusable[_i].crl };
	const char **to[4] = { &c.cert_file, &c.key_file, &c.ca_file, &c.crl_file };
	kit_write("empty", "");
	kit_write("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
	kit_crl(&other, "other.crl", 1, -60, 3600);
	for (size_t i = 0; i < 4; i++) {
		if (!names[i])
			continue;
		snprintf(paths[i], sizeof(paths[i]), "%s", kit_path(names[i]));
		*to[i] = paths[i];
	}
	ck_assert_msg(tls_context_new(&c, &em) == NULL, "%s", unusable[_i].what);
	ck_assert_msg(strstr(em.text, unusable[_i].says) != NULL, "%s: %s", unusable[_i].what, em.text);
	kit_ca_free(&other);
}
END_TEST

/* ---- what is spoken ---- */

static const struct {
	const char *offered;
	bool http1, http2;
	const char *chosen; /* NULL: refused */
} alpn[] = {
	{ NULL, true, true, "" },
	{ "\x02h2", true, true, "h2" },
	{ "\x08http/1.1", true, true, "http/1.1" },
	{ "\x02h2\x08http/1.1", true, true, "http/1.1" }, /* JSON's clients: HTTP/2 is for gRPC alone */
	{ "\x08grpc-exp\x02h2", true, true, "h2" },
	{ "\x03qux", true, true, NULL },
	{ "\x02h2\x08http/1.1", false, true, "h2" },
	{ "\x08http/1.1", false, true, NULL },
	{ "\x02h2\x08http/1.1", true, false, "http/1.1" },
	{ "\x02h2", true, false, NULL },
};

START_TEST(tls__protocols_are_agreed_on)
{
	struct kit_client_spec spec = alice;
	struct kit_client c;
	struct desk d;
	bool open;
	spec.alpn = alpn[_i].offered;
	desk_open(&d, usual, alpn[_i].http1, alpn[_i].http2);
	open = kit_client_open(&c, d.port, &spec);
	ck_assert_int_eq(open, alpn[_i].chosen != NULL);
	if (open)
		ck_assert_str_eq(kit_client_alpn(&c), alpn[_i].chosen);
	kit_client_close(&c);
	desk_close(&d);
}
END_TEST

START_TEST(tls__the_first_bytes_decide_in_whatever_records_they_come)
{
	static const char *const pieces[] = { "P", "RI * ", "HTTP/", "2.", "0\r\n\r\nSM\r\n\r\nmore" };
	struct desk d;
	struct kit_client c;
	desk_open(&d, usual, true, true);
	ck_assert(kit_client_open(&c, d.port, &alice));
	for (size_t i = 0; i < 5; i++) {
		ck_assert_uint_eq(count(&d, &d.http2) + count(&d, &d.http1), 0);
		kit_client_write(&c, pieces[i]);
		test_sleep_ms(10);
	}
	ck_assert(TEST_WAIT(5000, count(&d, &d.http2) == 1));
	expect(d.fd, PREFACE "more");
	kit_client_close(&c);
	desk_close(&d);
}
END_TEST

START_TEST(tls__who_speaks_plainly_is_closed)
{
	static const char *const texts[] = { "GET / HTTP/1.1\r\n\r\n", PREFACE, "\x16\x03\x01", "\x16\x03\x01\x00\x05hello", "SSH-2.0-x\r\n" };
	struct desk d;
	int fd;
	desk_open(&d, (struct acceptor_limits){ .max_undecided = 100, .decide_ms = 300 }, true, true);
	fd = test_connect(d.port);
	test_write(fd, texts[_i]);
	ck_assert(test_closed_within(fd, 5000));
	ck_assert_uint_eq(count(&d, &d.http2) + count(&d, &d.http1), 0);
	close(fd);
	ck_assert(is_let_in(&d, &alice));
	desk_close(&d);
}
END_TEST

START_TEST(tls__versions_and_suites_are_as_configured)
{
	struct errmsg em = { .text = "" };
	struct kit_client_spec spec = alice;
	struct kit_client c;
	struct desk d;
	config.min_version = TLS1_3_VERSION;
	desk_open(&d, usual, true, true);
	spec.max_version = TLS1_2_VERSION;
	ck_assert(!kit_client_open(&c, d.port, &spec));
	kit_client_close(&c);
	desk_close(&d);
	config.min_version = 0;
	config.max_version = TLS1_2_VERSION;
	config.cipher_suites = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305";
	desk_open(&d, usual, true, true);
	ck_assert(kit_client_open(&c, d.port, &alice));
	ck_assert_int_eq(SSL_version(c.ssl), TLS1_2_VERSION);
	ck_assert_str_eq(SSL_get_cipher_name(c.ssl), "ECDHE-ECDSA-CHACHA20-POLY1305");
	kit_client_close(&c);
	desk_close(&d);
	config.max_version = 0;
	config.cipher_suites = "TLS_AES_128_GCM_SHA256";
	desk_open(&d, usual, true, true);
	ck_assert(kit_client_open(&c, d.port, &alice));
	ck_assert_str_eq(SSL_get_cipher_name(c.ssl), "TLS_AES_128_GCM_SHA256");
	kit_client_close(&c);
	ck_assert(!kit_client_open(&c, d.port, &spec)); /* none of these is for TLS 1.2 */
	kit_client_close(&c);
	desk_close(&d);
	config.cipher_suites = NULL;
	ck_assert(tls_check_suites("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_AES_256_GCM_SHA384", 0, 0, &em));
	ck_assert(!tls_check_suites("ECDHE-RSA-AES256-GCM-SHA384", 0, 0, &em));
	ck_assert(!tls_check_suites(",", 0, 0, &em));
}
END_TEST

/* ---- handshakes that do not end ---- */

START_TEST(tls__half_open_handshakes_hold_up_nobody)
{
	enum { HALVES = 300 };
	/* A whole record of a ClientHello that is not whole. */
	static const char hello[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
	int fds[HALVES];
	size_t before, closed = 0;
	uint64_t began;
	struct desk d;
	desk_open(&d, (struct acceptor_limits){ .max_undecided = 1000, .decide_ms = 1500 }, true, true);
	before = test_open_descriptors();
	began = test_now_ms();
	for (size_t i = 0; i < HALVES; i++) {
		fds[i] = test_connect(d.port);
		if (i % 2)
			ck_assert_int_eq(send(fds[i], hello, i % sizeof(hello), MSG_NOSIGNAL), (ssize_t)(i % sizeof(hello)));
	}
	ck_assert(is_let_in(&d, &alice));
	for (size_t i = 0; i < HALVES; i++)
		closed += test_closed_within(fds[i], 10000);
	ck_assert_uint_eq(closed, HALVES);
	ck_assert_uint_ge(test_now_ms() - began, 1500);
	for (size_t i = 0; i < HALVES; i++)
		close(fds[i]);
	ck_assert(TEST_WAIT(5000, tls_context_figures(d.tls).handshakes_failed == HALVES));
	close(d.fd);
	d.fd = -1;
	ck_assert(TEST_WAIT(5000, test_open_descriptors() <= before));
	desk_close(&d);
}
END_TEST

START_TEST(tls__who_shakes_hands_and_says_nothing_is_closed)
{
	struct desk d;
	struct kit_client c;
	char text[8];
	desk_open(&d, (struct acceptor_limits){ .max_undecided = 100, .decide_ms = 300 }, true, true);
	ck_assert(kit_client_open(&c, d.port, &alice));
	kit_client_write(&c, "PRI");
	ck_assert_int_le(kit_client_read(&c, text, sizeof(text)), 0);
	ck_assert_uint_eq(count(&d, &d.http2) + count(&d, &d.http1), 0);
	kit_client_close(&c);
	desk_close(&d);
}
END_TEST

START_TEST(tls__too_many_undecided_close_the_oldest)
{
	struct desk d;
	int first, others[6];
	desk_open(&d, (struct acceptor_limits){ .max_undecided = 5 }, true, true);
	first = test_connect(d.port);
	for (size_t i = 0; i < 6; i++)
		others[i] = test_connect(d.port);
	ck_assert(test_closed_within(first, 5000));
	ck_assert(is_let_in(&d, &alice));
	close(first);
	for (size_t i = 0; i < 6; i++)
		close(others[i]);
	desk_close(&d);
}
END_TEST

START_TEST(metrics__have_a_line_for_each_listener)
{
	struct tls_context *t = context_of(&config);
	struct buf out = { .ptr = NULL };
	tls_write_metrics((struct tls_context *const[]){ NULL, t }, 2, &out);
	buf_append_byte(&out, 0);
	ck_assert_ptr_nonnull(strstr((char *)out.ptr, "# TYPE holdfast_tls_handshakes_total counter\nholdfast_tls_handshakes_total{listener=\"test\"} 0\n"));
	ck_assert_ptr_nonnull(strstr((char *)out.ptr, "holdfast_tls_files_stale{listener=\"test\"} 0\n"));
	buf_free(&out);
	tls_context_free(t);
}
END_TEST

#define LEN(a) ((int)(sizeof(a) / sizeof((a)[0])))

static void add_tests(TCase *c)
{
	tcase_add_test(c, tls__a_client_is_who_its_certificate_says);
	tcase_add_test(c, tls__nobody_is_asked_without_a_ca);
	tcase_add_loop_test(c, tls__bad_certificates_are_refused, 0, LEN(bad));
	tcase_add_test(c, tls__only_allowed_names_come_in);
	tcase_add_test(c, tls__names_with_a_zero_byte_are_no_names);
	tcase_add_loop_test(c, tls__revoked_is_refused_from_the_next_handshake_on, 0, 2);
	tcase_add_test(c, tls__resumption_would_let_the_revoked_in_so_there_is_none);
	tcase_add_test(c, tls__files_are_read_anew_and_bad_ones_are_not_used);
	tcase_add_test(c, tls__another_ca_is_trusted_once_the_bundle_has_it);
	tcase_add_loop_test(c, tls__what_cannot_be_used_is_said, 0, LEN(unusable));
	tcase_add_loop_test(c, tls__protocols_are_agreed_on, 0, LEN(alpn));
	tcase_add_test(c, tls__the_first_bytes_decide_in_whatever_records_they_come);
	tcase_add_loop_test(c, tls__who_speaks_plainly_is_closed, 0, 5);
	tcase_add_test(c, tls__versions_and_suites_are_as_configured);
	tcase_add_test(c, tls__half_open_handshakes_hold_up_nobody);
	tcase_add_test(c, tls__who_shakes_hands_and_says_nothing_is_closed);
	tcase_add_test(c, tls__too_many_undecided_close_the_oldest);
	tcase_add_test(c, metrics__have_a_line_for_each_listener);
}

int main(void)
{
	return desk_run("tls", add_tests);
}
