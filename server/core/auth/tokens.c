/* tokens.c: see tokens.h. The list is in the order of last use, which is that of deadlines: all TTLs are equal. */
#include "core/auth/tokens.h"

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"

enum { TOKEN_LETTERS = 16, INDEX_DIGITS_MAX = 20 };

struct token {
	struct list link;
	time_ms deadline;
	uint32_t token_len, user_len;
	uint8_t bytes[];
};

struct tokens {
	time_ms ttl_ms;
	struct mapb by_token;
	struct list used;
};

struct tokens *tokens_new(time_ms ttl_ms)
{
	struct tokens *t = mem_zalloc(sizeof(*t));

	t->ttl_ms = ttl_ms;
	list_init(&t->used);
	return t;
}

static void token_drop(struct tokens *t, struct token *k)
{
	mapb_remove(&t->by_token, slice_of(k->bytes, k->token_len));
	list_remove(&k->link);
	free(k);
}

void tokens_forget_all(struct tokens *t)
{
	while (!list_empty(&t->used))
		token_drop(t, CONTAINER_OF(t->used.next, struct token, link));
}

void tokens_free(struct tokens *t)
{
	if (!t)
		return;
	tokens_forget_all(t);
	mapb_deinit(&t->by_token);
	free(t);
}

void tokens_expire(struct tokens *t, time_ms now)
{
	while (!list_empty(&t->used) && CONTAINER_OF(t->used.next, struct token, link)->deadline <= now)
		token_drop(t, CONTAINER_OF(t->used.next, struct token, link));
}

void tokens_add(struct tokens *t, struct slice token, struct slice user, time_ms now)
{
	struct token *k = mapb_get(&t->by_token, token);

	if (k)
		token_drop(t, k);
	if (t->by_token.len >= AUTH_TOKENS_MAX)
		token_drop(t, CONTAINER_OF(t->used.next, struct token, link));
	k = mem_alloc(sizeof(*k) + token.len + user.len);
	k->deadline = now + t->ttl_ms;
	k->token_len = (uint32_t)token.len;
	k->user_len = (uint32_t)user.len;
	if (token.len)
		memcpy(k->bytes, token.ptr, token.len);
	if (user.len)
		memcpy(k->bytes + token.len, user.ptr, user.len);
	mapb_put(&t->by_token, token, k);
	list_push_back(&t->used, &k->link);
}

struct slice tokens_use(struct tokens *t, struct slice token, time_ms now)
{
	struct token *k;

	tokens_expire(t, now);
	k = mapb_get(&t->by_token, token);
	if (!k)
		return slice_of(NULL, 0);
	k->deadline = now + t->ttl_ms;
	list_remove(&k->link);
	list_push_back(&t->used, &k->link);
	return slice_of(k->bytes + k->token_len, k->user_len);
}

void tokens_forget_user(struct tokens *t, struct slice user)
{
	LIST_FOR_EACH_SAFE(l, next, &t->used) {
		struct token *k = CONTAINER_OF(l, struct token, link);

		if (slice_eq(slice_of(k->bytes + k->token_len, k->user_len), user))
			token_drop(t, k);
	}
}

uint64_t tokens_len(const struct tokens *t)
{
	return t->by_token.len;
}

bool token_index(struct slice token, uint64_t *ret_index)
{
	uint64_t index = 0;

	if (token.len < TOKEN_LETTERS + 2 || token.len > TOKEN_LETTERS + 1 + INDEX_DIGITS_MAX || token.ptr[TOKEN_LETTERS] != '.')
		return false;
	for (size_t i = TOKEN_LETTERS + 1; i < token.len; i++) {
		unsigned digit = (unsigned)token.ptr[i] - '0';

		if (digit > 9 || index > (UINT64_MAX - digit) / 10)
			return false;
		index = index * 10 + digit;
	}
	*ret_index = index;
	return true;
}
