/* tls_kit.h: CAs, certificates and revocation lists made in the test, and a client that speaks TLS. */
#ifndef HOLDFAST_TESTS_TLS_KIT_H
#define HOLDFAST_TESTS_TLS_KIT_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

struct kit_ca {
	EVP_PKEY *key;
	X509 *cert;
	long serial;
};

struct kit_cert_spec {
	const char *cn;        /* NULL: none */
	const char *names;     /* "DNS:a,IP:127.0.0.1"; NULL: none */
	long from_s, until_s;  /* from now; both 0: an hour back, a day on */
	bool server_only;      /* extended key usage */
};

/* A directory that is gone with the process's end; paths in it, each valid until 16 others were asked for. */
const char *kit_path(const char *name);

struct kit_ca kit_ca_new(const char *name);
void kit_ca_free(struct kit_ca *ca);
void kit_ca_write(const struct kit_ca *ca, const char *file);
/* NAME.pem and NAME.key; returns its serial number. ca NULL: signed by itself. */
long kit_cert(struct kit_ca *ca, const char *name, const struct kit_cert_spec *spec);
/* A list of one serial number (0: an empty one). from, until: seconds from now. */
void kit_crl(struct kit_ca *ca, const char *file, long serial, long from, long until);
void kit_copy(const char *from, const char *to); /* names; `to` appears at once, as another file */
void kit_write(const char *file, const char *text);

/* ---- a client ---- */

struct kit_client_spec {
	const char *ca, *cert;  /* names: CA.pem, CERT.pem with CERT.key; NULL: none, and the server is not checked */
	const char *host;       /* that the server's certificate must be for; NULL: any */
	const char *alpn;       /* "\x02h2"; NULL: none */
	int max_version;
};

struct kit_client {
	SSL_CTX *ctx;
	SSL *ssl;
	int fd;
};

/* Connects and shakes hands; with a time-out of 10 s on everything. False: no handshake. In TLS 1.3 a client learns only by reading that its certificate was
 * refused: see kit_refused. Close it in any case. */
bool kit_client_open(struct kit_client *c, uint16_t port, const struct kit_client_spec *spec);
void kit_client_close(struct kit_client *c);
void kit_client_write(struct kit_client *c, const char *text);
int kit_client_read(struct kit_client *c, char *text, int cap); /* as SSL_read */
const char *kit_client_alpn(struct kit_client *c); /* "" when none was chosen */
/* True when the server closes, at the handshake or at once after it. */
bool kit_refused(uint16_t port, const struct kit_client_spec *spec);

#endif
