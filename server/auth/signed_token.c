/* signed_token.c: see signed_token.h. Compact form: base64url(header) . base64url(claims) . base64url(signature).
 *
 *   (S1) the key and the method are ours alone: the token's header must name the same method, and is believed in nothing.
 *   (S2) what was verified is kept for a while, by all its bytes: a signature costs more than the request that it comes with. New keys empty that. */
#include "auth/signed_token.h"

#include <jansson.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base64.h"
#include "base/hash.h"
#include "base/mem.h"

enum { KEY_BYTES_MAX = 64 * 1024, SIGNATURE_MAX = 2048, CACHE_LEN = 1024, TTL_S = 300 };

enum family { FAMILY_HS, FAMILY_RS, FAMILY_PS, FAMILY_ES, FAMILY_ED };

static const struct sign_method {
	const char *name;
	enum family family;
	const EVP_MD *(*digest)(void);
	size_t half; /* ES: bytes of r and of s */
} sign_methods[] = {
	{ "HS256", FAMILY_HS, EVP_sha256, 0 }, { "HS384", FAMILY_HS, EVP_sha384, 0 }, { "HS512", FAMILY_HS, EVP_sha512, 0 },
	{ "RS256", FAMILY_RS, EVP_sha256, 0 }, { "RS384", FAMILY_RS, EVP_sha384, 0 }, { "RS512", FAMILY_RS, EVP_sha512, 0 },
	{ "PS256", FAMILY_PS, EVP_sha256, 0 }, { "PS384", FAMILY_PS, EVP_sha384, 0 }, { "PS512", FAMILY_PS, EVP_sha512, 0 },
	{ "ES256", FAMILY_ES, EVP_sha256, 32 }, { "ES384", FAMILY_ES, EVP_sha384, 48 }, { "ES512", FAMILY_ES, EVP_sha512, 66 },
	{ "EdDSA", FAMILY_ED, NULL, 0 },
};

struct keys {
	EVP_PKEY *private, *public; /* not of HS */
	struct buf secret;          /* HS */
};

struct cached {
	struct buf token, user;
	uint64_t revision;
	int64_t expires_s;
};

struct signed_tokens {
	const struct sign_method *method;
	char *pub_path, *priv_path; /* NULL: not given */
	int64_t ttl_s;
	struct stat seen[2];
	pthread_rwlock_t lock;
	struct keys keys;           /* guarded by lock */
	pthread_mutex_t cache_mu;
	struct cached cache[CACHE_LEN]; /* guarded by cache_mu */
};

/* ---- keys ---- */

static void keys_free(struct keys *k)
{
	EVP_PKEY_free(k->private);
	EVP_PKEY_free(k->public);
	if (k->secret.ptr)
		OPENSSL_cleanse(k->secret.ptr, k->secret.cap);
	buf_free(&k->secret);
	*k = (struct keys){ .private = NULL };
}

static enum err read_file(const char *path, struct buf *ret, struct errmsg *em)
{
	FILE *f = fopen(path, "re");
	char chunk[4096];
	size_t n;
	if (!f) {
		errmsg_set(em, "cannot open '%s'", path);
		return ERR_IO;
	}
	while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0 && ret->len < KEY_BYTES_MAX)
		buf_append(ret, chunk, n);
	n = (size_t)ferror(f);
	fclose(f);
	OPENSSL_cleanse(chunk, sizeof(chunk));
	if (n || ret->len == 0 || ret->len >= KEY_BYTES_MAX) {
		errmsg_set(em, "'%s' is no key file", path);
		return ERR_IO;
	}
	return ERR_OK;
}

static EVP_PKEY *parse_public(struct slice pem)
{
	BIO *b = BIO_new_mem_buf(pem.ptr, (int)pem.len);
	EVP_PKEY *key = PEM_read_bio_PUBKEY(b, NULL, NULL, NULL);
	X509 *cert = NULL;
	BIO_free(b);
	if (key)
		return key;
	b = BIO_new_mem_buf(pem.ptr, (int)pem.len);
	cert = PEM_read_bio_X509(b, NULL, NULL, NULL);
	BIO_free(b);
	key = cert ? X509_get_pubkey(cert) : NULL;
	X509_free(cert);
	return key;
}

/* No pass phrase is asked for. */
static int no_pass_phrase(char *buf, int size, int rwflag, void *ctx)
{
	(void)buf, (void)size, (void)rwflag, (void)ctx;
	return 0;
}

static EVP_PKEY *parse_private(struct slice pem)
{
	BIO *b = BIO_new_mem_buf(pem.ptr, (int)pem.len);
	EVP_PKEY *key = PEM_read_bio_PrivateKey(b, NULL, no_pass_phrase, NULL);
	BIO_free(b);
	return key;
}

static bool key_fits(const struct sign_method *m, const EVP_PKEY *key)
{
	int want = m->family == FAMILY_ES ? EVP_PKEY_EC : m->family == FAMILY_ED ? EVP_PKEY_ED25519 : EVP_PKEY_RSA;
	if (!key || EVP_PKEY_get_base_id(key) != want)
		return false;
	return m->family != FAMILY_ES || ((size_t)EVP_PKEY_get_bits(key) + 7) / 8 == m->half;
}

static enum err load_pair(const struct signed_tokens *t, struct keys *k, struct errmsg *em)
{
	struct buf pem = { .ptr = NULL };
	enum err e = ERR_OK;
	if (t->priv_path) {
		e = read_file(t->priv_path, &pem, em);
		k->private = e ? NULL : parse_private(buf_view(&pem));
		if (!e && !key_fits(t->method, k->private)) {
			errmsg_set(em, "'%s' is not a private key for %s", t->priv_path, t->method->name);
			e = ERR_SYNTAX;
		}
	}
	if (pem.ptr)
		OPENSSL_cleanse(pem.ptr, pem.cap);
	buf_clear(&pem);
	if (!e && t->pub_path) {
		e = read_file(t->pub_path, &pem, em);
		k->public = e ? NULL : parse_public(buf_view(&pem));
		if (!e && !key_fits(t->method, k->public)) {
			errmsg_set(em, "'%s' is not a public key for %s", t->pub_path, t->method->name);
			e = ERR_SYNTAX;
		}
	}
	buf_free(&pem);
	if (!e && !k->public) {
		EVP_PKEY_up_ref(k->private);
		k->public = k->private;
	}
	if (!e && k->private && EVP_PKEY_eq(k->private, k->public) != 1) {
		errmsg_set(em, "'%s' is not the public key of '%s'", t->pub_path, t->priv_path);
		e = ERR_SYNTAX;
	}
	return e;
}

static enum err load(const struct signed_tokens *t, struct keys *ret, struct errmsg *em)
{
	struct keys k = { .private = NULL };
	enum err e;
	if (t->method->family == FAMILY_HS)
		e = read_file(t->priv_path ? t->priv_path : t->pub_path, &k.secret, em);
	else
		e = load_pair(t, &k, em);
	if (e)
		keys_free(&k);
	else
		*ret = k;
	return e;
}

/* ---- signatures ---- */

static bool hmac(const struct signed_tokens *t, struct slice text, uint8_t *ret, size_t *ret_len)
{
	unsigned len = 0;
	if (!HMAC(t->method->digest(), t->keys.secret.ptr, (int)t->keys.secret.len, text.ptr, text.len, ret, &len))
		return false;
	*ret_len = len;
	return true;
}

static bool set_padding(const struct signed_tokens *t, EVP_PKEY_CTX *ctx, int salt)
{
	if (t->method->family != FAMILY_PS)
		return true;
	return EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_PSS_PADDING) == 1 && EVP_PKEY_CTX_set_rsa_pss_saltlen(ctx, salt) == 1;
}

/* r and s side by side <-> DER */
static bool from_der(const uint8_t *der, size_t len, size_t half, uint8_t *ret)
{
	ECDSA_SIG *sig = d2i_ECDSA_SIG(NULL, &der, (long)len);
	bool ok = sig && BN_bn2binpad(ECDSA_SIG_get0_r(sig), ret, (int)half) >= 0 && BN_bn2binpad(ECDSA_SIG_get0_s(sig), ret + half, (int)half) >= 0;
	ECDSA_SIG_free(sig);
	return ok;
}

static size_t to_der(struct slice raw, size_t half, uint8_t **ret)
{
	ECDSA_SIG *sig = ECDSA_SIG_new();
	BIGNUM *r = BN_bin2bn(raw.ptr, (int)half, NULL), *s = BN_bin2bn(raw.ptr + half, (int)half, NULL);
	int len = -1;
	*ret = NULL;
	if (sig && r && s && ECDSA_SIG_set0(sig, r, s) == 1)
		len = i2d_ECDSA_SIG(sig, ret);
	ECDSA_SIG_free(sig);
	return len > 0 ? (size_t)len : 0;
}

static bool sign_pair(const struct signed_tokens *t, struct slice text, uint8_t *ret, size_t *ret_len)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	EVP_PKEY_CTX *pctx = NULL;
	uint8_t raw[SIGNATURE_MAX];
	size_t len = sizeof(raw);
	bool ok = EVP_DigestSignInit(ctx, &pctx, t->method->digest ? t->method->digest() : NULL, NULL, t->keys.private) == 1 &&
		  set_padding(t, pctx, RSA_PSS_SALTLEN_DIGEST) && EVP_DigestSign(ctx, raw, &len, text.ptr, text.len) == 1;
	EVP_MD_CTX_free(ctx);
	if (!ok)
		return false;
	if (t->method->family == FAMILY_ES) {
		*ret_len = 2 * t->method->half;
		return from_der(raw, len, t->method->half, ret);
	}
	memcpy(ret, raw, len);
	*ret_len = len;
	return true;
}

static bool verify_pair(const struct signed_tokens *t, struct slice text, struct slice signature)
{
	EVP_MD_CTX *ctx;
	EVP_PKEY_CTX *pctx = NULL;
	uint8_t *der = NULL;
	bool ok;
	if (t->method->family == FAMILY_ES) {
		if (signature.len != 2 * t->method->half)
			return false;
		signature.len = to_der(signature, t->method->half, &der);
		signature.ptr = der;
		if (!der)
			return false;
	}
	ctx = EVP_MD_CTX_new();
	ok = EVP_DigestVerifyInit(ctx, &pctx, t->method->digest ? t->method->digest() : NULL, NULL, t->keys.public) == 1 &&
	     set_padding(t, pctx, RSA_PSS_SALTLEN_AUTO) && EVP_DigestVerify(ctx, signature.ptr, signature.len, text.ptr, text.len) == 1;
	EVP_MD_CTX_free(ctx);
	OPENSSL_free(der);
	return ok;
}

static bool is_signed(struct signed_tokens *t, struct slice text, struct slice signature)
{
	uint8_t mac[EVP_MAX_MD_SIZE];
	size_t len = 0;
	bool ok;
	pthread_rwlock_rdlock(&t->lock);
	if (t->method->family == FAMILY_HS)
		ok = hmac(t, text, mac, &len) && len == signature.len && CRYPTO_memcmp(mac, signature.ptr, len) == 0;
	else
		ok = verify_pair(t, text, signature);
	pthread_rwlock_unlock(&t->lock);
	return ok;
}

/* ---- tokens ---- */

enum err signed_tokens_sign(struct signed_tokens *t, struct slice user, uint64_t revision, int64_t now_s, struct buf *ret)
{
	json_t *claims = json_pack("{s:I, s:I, s:s%}", "exp", (json_int_t)(now_s + t->ttl_s), "revision", (json_int_t)revision, "username",
				   (const char *)user.ptr, user.len);
	char *text = claims ? json_dumps(claims, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	struct buf header = { .ptr = NULL };
	uint8_t signature[SIGNATURE_MAX];
	size_t len = 0, start = ret->len;
	enum err e = ERR_OK;
	bool ok;
	json_decref(claims);
	if (!text) /* a name that is no text */
		return ERR_AUTH_FAILED;
	buf_printf(&header, "{\"alg\":\"%s\",\"typ\":\"JWT\"}", t->method->name);
	base64url_encode(ret, buf_view(&header));
	buf_append_byte(ret, '.');
	base64url_encode(ret, slice_of_str(text));
	free(text);
	buf_free(&header);
	pthread_rwlock_rdlock(&t->lock);
	if (t->method->family != FAMILY_HS && !t->keys.private)
		e = ERR_UNIMPLEMENTED;
	else if (t->method->family == FAMILY_HS)
		e = hmac(t, slice_of(ret->ptr + start, ret->len - start), signature, &len) ? ERR_OK : ERR_NOMEM;
	else
		e = sign_pair(t, slice_of(ret->ptr + start, ret->len - start), signature, &len) ? ERR_OK : ERR_NOMEM;
	pthread_rwlock_unlock(&t->lock);
	ok = e == ERR_OK;
	if (ok) {
		buf_append_byte(ret, '.');
		base64url_encode(ret, slice_of(signature, len));
	} else {
		ret->len = start;
	}
	return e;
}

struct parts {
	struct slice text, header, claims, signature; /* text: header.claims */
};

static bool split(struct slice token, struct parts *ret)
{
	const uint8_t *dot1 = token.len ? memchr(token.ptr, '.', token.len) : NULL, *dot2;
	const uint8_t *end = token.ptr + token.len;
	if (!dot1)
		return false;
	dot2 = memchr(dot1 + 1, '.', (size_t)(end - dot1 - 1));
	if (!dot2 || memchr(dot2 + 1, '.', (size_t)(end - dot2 - 1)))
		return false;
	ret->text = slice_of(token.ptr, (size_t)(dot2 - token.ptr));
	ret->header = slice_of(token.ptr, (size_t)(dot1 - token.ptr));
	ret->claims = slice_of(dot1 + 1, (size_t)(dot2 - dot1 - 1));
	ret->signature = slice_of(dot2 + 1, (size_t)(end - dot2 - 1));
	return true;
}

static json_t *parse_json(struct slice base64)
{
	struct buf text = { .ptr = NULL };
	json_t *j = NULL;
	if (base64url_decode_exact(&text, base64))
		j = json_loadb((const char *)text.ptr, text.len, JSON_REJECT_DUPLICATES, NULL);
	buf_free(&text);
	return json_is_object(j) ? j : (json_decref(j), NULL);
}

static bool header_is_ours(const struct signed_tokens *t, struct slice base64)
{
	json_t *header = parse_json(base64);
	const char *alg = json_string_value(json_object_get(header, "alg"));
	bool ours = alg && strcmp(alg, t->method->name) == 0; /* S1 */
	json_decref(header);
	return ours;
}

static bool read_claims(struct slice base64, int64_t now_s, struct cached *ret)
{
	json_t *claims = parse_json(base64);
	const json_t *name = json_object_get(claims, "username"), *revision = json_object_get(claims, "revision");
	const json_t *exp = json_object_get(claims, "exp"), *nbf = json_object_get(claims, "nbf");
	bool ok = json_is_string(name) && json_string_length(name) > 0 && json_is_number(revision) && json_number_value(revision) >= 1 &&
		  json_number_value(revision) < 9e15 && json_is_number(exp) && json_number_value(exp) > (double)now_s && json_number_value(exp) < 9e15 &&
		  (!nbf || (json_is_number(nbf) && json_number_value(nbf) <= (double)now_s));
	if (ok) {
		ret->user = buf_copy_of(slice_of(json_string_value(name), json_string_length(name)));
		ret->revision = (uint64_t)json_number_value(revision);
		ret->expires_s = (int64_t)json_number_value(exp);
	}
	json_decref(claims);
	return ok;
}

static struct cached *cache_slot(struct signed_tokens *t, struct slice token)
{
	return &t->cache[hash64(0, token.ptr, token.len) % CACHE_LEN];
}

static bool cache_get(struct signed_tokens *t, struct slice token, int64_t now_s, struct buf *ret_user, uint64_t *ret_revision)
{
	struct cached *slot = cache_slot(t, token);
	bool hit;
	pthread_mutex_lock(&t->cache_mu);
	hit = slot->token.len && slice_eq(buf_view(&slot->token), token) && slot->expires_s > now_s;
	if (hit) {
		*ret_user = buf_copy_of(buf_view(&slot->user));
		*ret_revision = slot->revision;
	}
	pthread_mutex_unlock(&t->cache_mu);
	return hit;
}

static void cached_free(struct cached *c)
{
	buf_free(&c->token);
	buf_free(&c->user);
}

static void cache_put(struct signed_tokens *t, struct slice token, const struct cached *c)
{
	struct cached *slot = cache_slot(t, token);
	pthread_mutex_lock(&t->cache_mu);
	cached_free(slot);
	*slot = (struct cached){ buf_copy_of(token), buf_copy_of(buf_view(&c->user)), c->revision, c->expires_s };
	pthread_mutex_unlock(&t->cache_mu);
}

enum err signed_tokens_verify(struct signed_tokens *t, struct slice token, int64_t now_s, struct buf *ret_user, uint64_t *ret_revision)
{
	struct cached c = { .revision = 0 };
	struct buf signature = { .ptr = NULL };
	struct parts p;
	bool ok;
	if (token.len == 0 || token.len > SIGNED_TOKEN_BYTES_MAX)
		return ERR_AUTH_INVALID_TOKEN;
	if (cache_get(t, token, now_s, ret_user, ret_revision))
		return ERR_OK;
	ok = split(token, &p) && header_is_ours(t, p.header) && base64url_decode_exact(&signature, p.signature) && is_signed(t, p.text, buf_view(&signature)) &&
	     read_claims(p.claims, now_s, &c);
	buf_free(&signature);
	if (!ok)
		return ERR_AUTH_INVALID_TOKEN;
	cache_put(t, token, &c);
	*ret_user = buf_take(&c.user);
	*ret_revision = c.revision;
	return ERR_OK;
}

/* ---- options ---- */

static bool parse_ttl(const char *value, int64_t *ret_s)
{
	int64_t total = 0;
	while (*value) {
		char *end;
		long v = strtol(value, &end, 10);
		if (end == value || *value < '0' || *value > '9' || v > 1000000)
			return false;
		total += v * (*end == 'h' ? 3600 : *end == 'm' ? 60 : *end == 's' ? 1 : 0);
		if (*end != 'h' && *end != 'm' && *end != 's')
			return false;
		value = end + 1;
	}
	*ret_s = total;
	return total > 0;
}

static char *copy(const char *s, size_t len)
{
	char *c = mem_alloc(len + 1);
	memcpy(c, s, len);
	c[len] = '\0';
	return c;
}

static bool set_option(struct signed_tokens *t, const char *name, char *value, struct errmsg *em)
{
	char **path = strcmp(name, "pub-key") == 0 ? &t->pub_path : strcmp(name, "priv-key") == 0 ? &t->priv_path : NULL;
	if (path) {
		free(*path);
		*path = copy(value, strlen(value));
		return true;
	}
	if (strcmp(name, "ttl") == 0) {
		if (parse_ttl(value, &t->ttl_s))
			return true;
		errmsg_set(em, "ttl '%s' is not a duration such as 5m", value);
		return false;
	}
	if (strcmp(name, "sign-method") != 0) {
		errmsg_set(em, "'%s' is none of pub-key, priv-key, sign-method, ttl", name);
		return false;
	}
	for (size_t i = 0; i < sizeof(sign_methods) / sizeof(sign_methods[0]); i++)
		if (strcmp(sign_methods[i].name, value) == 0)
			t->method = &sign_methods[i];
	if (!t->method)
		errmsg_set(em, "'%s' is no signing method (such as RS256, PS256, ES256, HS256 or EdDSA)", value);
	return t->method != NULL;
}

static bool parse_options(struct signed_tokens *t, const char *options, struct errmsg *em)
{
	for (const char *at = options; *at;) {
		size_t len = strcspn(at, ",");
		char *item = copy(at, len), *eq = strchr(item, '=');
		bool ok;
		if (eq)
			*eq = '\0';
		else
			errmsg_set(em, "'%s' is not of the form NAME=VALUE", item);
		ok = eq && set_option(t, item, eq + 1, em);
		free(item);
		if (!ok)
			return false;
		at += len + (at[len] == ',');
	}
	if (!t->method)
		errmsg_set(em, "sign-method is missing");
	else if (!t->pub_path && !t->priv_path)
		errmsg_set(em, "neither pub-key nor priv-key is given");
	return t->method && (t->pub_path || t->priv_path);
}

static void look_at_files(const struct signed_tokens *t, struct stat ret[2])
{
	memset(ret, 0, 2 * sizeof(*ret));
	if (t->pub_path)
		stat(t->pub_path, &ret[0]);
	if (t->priv_path)
		stat(t->priv_path, &ret[1]);
}

enum err signed_tokens_new(const char *options, struct signed_tokens **ret, struct errmsg *em)
{
	struct signed_tokens *t = mem_zalloc(sizeof(*t));
	enum err e = ERR_SYNTAX;
	t->ttl_s = TTL_S;
	pthread_rwlock_init(&t->lock, NULL);
	pthread_mutex_init(&t->cache_mu, NULL);
	if (parse_options(t, options, em)) {
		look_at_files(t, t->seen);
		e = load(t, &t->keys, em);
	}
	if (e)
		signed_tokens_free(t);
	else
		*ret = t;
	return e;
}

static void cache_clear(struct signed_tokens *t)
{
	pthread_mutex_lock(&t->cache_mu);
	for (size_t i = 0; i < CACHE_LEN; i++)
		cached_free(&t->cache[i]);
	memset(t->cache, 0, sizeof(t->cache));
	pthread_mutex_unlock(&t->cache_mu);
}

void signed_tokens_free(struct signed_tokens *t)
{
	if (!t)
		return;
	cache_clear(t);
	keys_free(&t->keys);
	free(t->pub_path);
	free(t->priv_path);
	pthread_rwlock_destroy(&t->lock);
	pthread_mutex_destroy(&t->cache_mu);
	free(t);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

const char *signed_tokens_reload(struct signed_tokens *t, bool *ret_bad)
{
	struct stat now[2];
	struct keys keys = { .private = NULL }, old;
	struct errmsg em;
	enum err e;
	look_at_files(t, now);
	if (same_file(&now[0], &t->seen[0]) && same_file(&now[1], &t->seen[1]))
		return NULL;
	memcpy(t->seen, now, sizeof(now));
	e = load(t, &keys, &em);
	*ret_bad = e != ERR_OK;
	if (e)
		return "the keys of signed tokens have changed and cannot be used: the old ones stay";
	pthread_rwlock_wrlock(&t->lock);
	old = t->keys;
	t->keys = keys;
	pthread_rwlock_unlock(&t->lock);
	keys_free(&old);
	cache_clear(t);
	return "the keys of signed tokens have changed and were read again";
}
