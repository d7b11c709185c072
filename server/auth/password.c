/* password.c: see password.h. libxcrypt's crypt_r keeps its scratch memory in a struct of 32 KiB, one a thread. */
#include "auth/password.h"

#include <crypt.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/base64.h"
#include "base/mem.h"

enum { HASH_LEN = 60, SALT_BYTES = 16 };

struct passwords {
	unsigned cost;
	pthread_t threads[PASSWORD_THREADS];
	char dummy[CRYPT_GENSALT_OUTPUT_SIZE]; /* a salt to compare with when there is no user */
	pthread_mutex_t mu;
	pthread_cond_t wake;
	/* guarded by mu */
	struct list jobs;
	size_t len;
	bool stop;
};

void password_wipe(struct buf *b)
{
	if (b->ptr)
		explicit_bzero(b->ptr, b->cap);
	buf_free(b);
}

const char *password_objection(struct slice password)
{
	if (password.len == 0)
		return "holdfast: the password is empty";
	if (password.len > PASSWORD_BYTES_MAX)
		return "holdfast: the password is longer than 72 bytes";
	return memchr(password.ptr, 0, password.len) ? "holdfast: the password has a zero byte" : NULL;
}

static bool is_bcrypt(const char *hash)
{
	if (hash[0] != '$' || hash[1] != '2' || hash[2] == '\0' || !strchr("aby", hash[2]) || hash[3] != '$' || hash[6] != '$')
		return false;
	if (hash[4] < '0' || hash[4] > '3' || hash[5] < '0' || hash[5] > '9')
		return false;
	for (size_t i = 7; i < HASH_LEN; i++)
		if (hash[i] == '\0' || !strchr("./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", hash[i]))
			return false;
	return true;
}

bool password_hash_is_known(struct slice base64)
{
	struct buf hash = { .ptr = NULL };
	bool known = base64_decode_exact(&hash, base64) && hash.len == HASH_LEN && is_bcrypt((const char *)hash.ptr);
	buf_free(&hash);
	return known;
}

/* ---- the work ---- */

static bool equal_in_constant_time(const char *a, const char *b, size_t len)
{
	unsigned char diff = 0;
	for (size_t i = 0; i < len; i++)
		diff |= (unsigned char)(a[i] ^ b[i]);
	return diff == 0;
}

static void hash_new(const struct passwords *p, struct password_job *job, const char *password, struct crypt_data *scratch)
{
	char random[SALT_BYTES], salt[CRYPT_GENSALT_OUTPUT_SIZE];
	const char *hash;
	ASSERT(getrandom(random, sizeof(random), 0) == sizeof(random));
	ASSERT(crypt_gensalt_rn("$2b$", p->cost, random, sizeof(random), salt, sizeof(salt)));
	hash = crypt_r(password, salt, scratch);
	ASSERT(hash && strlen(hash) == HASH_LEN);
	buf_clear(&job->hash);
	base64_encode(&job->hash, slice_of(hash, HASH_LEN));
}

static void compare(const struct passwords *p, struct password_job *job, const char *password, struct crypt_data *scratch)
{
	char expected[HASH_LEN + 1] = "";
	bool usable = job->hash.len == HASH_LEN && job->password.len > 0 && !memchr(job->password.ptr, 0, job->password.len);
	const char *hash;
	if (usable)
		memcpy(expected, job->hash.ptr, HASH_LEN);
	hash = crypt_r(password, usable ? expected : p->dummy, scratch);
	job->right = usable && hash && strlen(hash) == HASH_LEN && equal_in_constant_time(hash, expected, HASH_LEN);
}

static void work(const struct passwords *p, struct password_job *job, struct crypt_data *scratch)
{
	size_t len = job->password.len;
	char *password = mem_alloc(len + 1);
	if (len)
		memcpy(password, job->password.ptr, len);
	password[len] = '\0';
	if (job->err)
		job->right = false;
	else if (job->compare)
		compare(p, job, password, scratch);
	else
		hash_new(p, job, password, scratch);
	explicit_bzero(password, len);
	free(password);
	explicit_bzero(scratch, sizeof(*scratch));
	password_wipe(&job->password);
	job->done(job);
}

static void *passwords_main(void *arg)
{
	struct passwords *p = arg;
	struct crypt_data *scratch = mem_zalloc(sizeof(*scratch));
	struct list *l;
	pthread_mutex_lock(&p->mu);
	for (;;) {
		while (list_empty(&p->jobs) && !p->stop)
			pthread_cond_wait(&p->wake, &p->mu);
		l = list_pop_front(&p->jobs);
		if (!l)
			break;
		p->len--;
		CONTAINER_OF(l, struct password_job, link)->err = p->stop ? ERR_STOPPED : ERR_OK;
		pthread_mutex_unlock(&p->mu);
		work(p, CONTAINER_OF(l, struct password_job, link), scratch);
		pthread_mutex_lock(&p->mu);
	}
	pthread_mutex_unlock(&p->mu);
	free(scratch);
	return NULL;
}

struct passwords *passwords_new(unsigned cost)
{
	struct passwords *p = mem_zalloc(sizeof(*p));
	char random[SALT_BYTES] = { 0 };
	ASSERT(cost >= PASSWORD_COST_MIN && cost <= PASSWORD_COST_MAX);
	p->cost = cost;
	ASSERT(crypt_gensalt_rn("$2b$", cost, random, sizeof(random), p->dummy, sizeof(p->dummy)));
	pthread_mutex_init(&p->mu, NULL);
	pthread_cond_init(&p->wake, NULL);
	list_init(&p->jobs);
	for (size_t i = 0; i < PASSWORD_THREADS; i++)
		ASSERT(pthread_create(&p->threads[i], NULL, passwords_main, p) == 0);
	return p;
}

void passwords_free(struct passwords *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->mu);
	p->stop = true;
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->mu);
	for (size_t i = 0; i < PASSWORD_THREADS; i++)
		pthread_join(p->threads[i], NULL);
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->mu);
	free(p);
}

enum err passwords_submit(struct passwords *p, struct password_job *job)
{
	bool fits;
	pthread_mutex_lock(&p->mu);
	fits = p->len < PASSWORD_QUEUE_MAX && !p->stop;
	if (fits) {
		list_push_back(&p->jobs, &job->link);
		p->len++;
		pthread_cond_signal(&p->wake);
	}
	pthread_mutex_unlock(&p->mu);
	return fits ? ERR_OK : ERR_TOO_MANY_REQUESTS;
}
