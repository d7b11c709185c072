/* member_change.c: members come, are counted, change their address and go: by the log alone.
 *
 *   (G1) what a change does follows from the state and the entry; what only the leader can know (who is heard, who has caught up) was asked
 *        before the entry was proposed (core/members.c).
 *   (G2) between two states that follow each other at most one member more, or one fewer, counts.
 *   (G3) a voter that is added is not counted before it has caught up (joining): no quorum ever waits for one that has yet to be started, or
 *        never will be since its address is wrong.
 *   (G4) there is always one that counts, and an ID that was removed is never a member again.
 *   (G5) a voter goes in two steps: it is counted no more (leaving), and then it is removed. Who hears that it was removed stops for good, and may be
 *        needed for a quorum by those who have not heard yet that they do without it. Whoever has the second step in its log knows the first as
 *        committed, across a crash too (take_write in ready.c); so once the second is committed, a quorum of those who are left knows. */
#include "base/mem.h"
#include "core/member/member_record.h"

#define KIND(name) MEMBER_CHANGE(name)

/* ---- addresses ---- */

static size_t digits(const char *s)
{
	size_t n = 0;

	while (s[n] >= '0' && s[n] <= '9')
		n++;
	return n;
}

static bool port_is_valid(const char *s)
{
	unsigned v = 0;
	size_t n = digits(s);

	if (n == 0 || n > 5 || s[n] != '\0')
		return false;
	for (size_t i = 0; i < n; i++)
		v = 10 * v + (unsigned)(s[i] - '0');
	return v > 0 && v <= 65535;
}

/* What follows `prefix`, or NULL. */
static const char *after(const char *s, const char *prefix)
{
	size_t n = strlen(prefix);

	return strlen(s) >= n && memcmp(s, prefix, n) == 0 ? s + n : NULL;
}

static bool url_is_valid(const char *url)
{
	const char *host = after(url, "http://") ? after(url, "http://") : after(url, "https://");
	const char *end = host;

	if (strlen(url) > MEMBER_URL_BYTES_MAX)
		return false;
	if (after(url, "unix://"))
		return *after(url, "unix://") != '\0';
	if (!host)
		return false;
	while (*end != '\0' && *end != (*host == '[' ? ']' : ':'))
		end++;
	if (*end == '\0' || end == host || (*host == '[' && end == host + 1))
		return false;
	for (const char *s = host; s < end; s++)
		if (*s <= ' ' || *s == '/' || *s == '@' || *s == '?' || *s == '#' || *s == ',' || *s == 0x7f)
			return false;
	if (*end == ']')
		end++;
	return *end == ':' && port_is_valid(end + 1);
}

bool member_peer_urls_are_valid(const char *const *urls, size_t len)
{
	if (len == 0 || len > MEMBER_URLS_MAX)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (!url_is_valid(urls[i]))
			return false;
		for (size_t j = 0; j < i; j++)
			if (strcmp(urls[i], urls[j]) == 0)
				return false;
	}
	return true;
}

static bool has_url(const struct member_record *m, const struct member_change *ch)
{
	for (size_t i = 0; i < m->peer_urls_len; i++)
		for (size_t j = 0; j < ch->peer_urls_len; j++)
			if (strcmp(m->peer_urls[i], ch->peer_urls[j]) == 0)
				return true;
	return false;
}

/* ---- what speaks against it ---- */

bool member_was_removed(const struct state *st, member_id id)
{
	uint8_t key[8];

	member_put_key(id, key);
	return tree_get(&st->removed, slice_of(key, sizeof(key))) != NULL;
}

struct counts {
	size_t learners, counted;
	bool url_taken;
};

static struct counts count(const struct state *st, const struct member_change *ch)
{
	struct counts n = { 0 };
	struct tree_cursor cursor;

	for (struct tree_record *r = tree_first(&cursor, &st->members); r; r = tree_next(&cursor)) {
		const struct member_record *m = (const struct member_record *)r;

		n.learners += m->learner;
		n.counted += member_counts(m);
		n.url_taken = n.url_taken || (m->id != ch->id && has_url(m, ch));
	}
	return n;
}

static enum err check_add(const struct state *st, const struct member_change *ch, const struct counts *n)
{
	if (ch->id == 0 || member_find(st, ch->id) || member_was_removed(st, ch->id))
		return ERR_MEMBER_EXISTS;
	if (!member_peer_urls_are_valid(ch->peer_urls, ch->peer_urls_len))
		return ERR_MEMBER_BAD_URLS;
	if (n->url_taken)
		return ERR_PEER_URL_EXISTS;
	if (ch->kind == KIND(ADD_LEARNER) && n->learners >= MEMBER_LEARNERS_MAX)
		return ERR_TOO_MANY_LEARNERS;
	return st->members.len >= MEMBERS_MAX ? ERR_TOO_MANY_MEMBERS : ERR_OK;
}

enum err member_change_check(const struct state *st, const struct member_change *ch)
{
	const struct member_record *m = member_find(st, ch->id);
	struct counts n = count(st, ch);

	if (ch->kind == KIND(ADD_LEARNER) || ch->kind == KIND(ADD_VOTER))
		return check_add(st, ch, &n);
	if (!m)
		return ERR_MEMBER_NOT_FOUND;
	switch (ch->kind) {
	case KIND(PROMOTE):
		return m->learner ? ERR_OK : ERR_MEMBER_NOT_LEARNER;
	case KIND(JOIN):
		return m->joining ? ERR_OK : ERR_MEMBER_NOT_LEARNER;
	case KIND(LEAVE):
		if (!member_counts(m))
			return ERR_MEMBER_NOT_LEARNER;
		/* fall through */
	case KIND(REMOVE): /* G4 */
		return member_counts(m) && n.counted == 1 ? ERR_MEMBER_NOT_ENOUGH_STARTED : ERR_OK;
	case KIND(UPDATE):
		if (!member_peer_urls_are_valid(ch->peer_urls, ch->peer_urls_len))
			return ERR_MEMBER_BAD_URLS;
		return n.url_taken ? ERR_PEER_URL_EXISTS : ERR_OK;
	default:
		return ERR_MALFORMED;
	}
}

/* ---- carrying it out ---- */

/* A copy in order, to be freed; the strings are the change's. */
static const char **sorted_urls(const struct member_change *ch)
{
	const char **sorted = mem_alloc((ch->peer_urls_len + 1) * sizeof(*sorted));

	for (size_t i = 0; i < ch->peer_urls_len; i++)
		sorted[i] = ch->peer_urls[i];
	member_sort_urls(sorted, ch->peer_urls_len);
	return sorted;
}

static void add(struct state *st, const struct member_change *ch, struct url_list peers)
{
	struct member_record *r = member_record_new(ch->id, "", peers, (struct url_list){ 0 });

	r->learner = ch->kind == KIND(ADD_LEARNER);
	r->joining = !r->learner;
	tree_put_take(&st->members, &r->base);
}

static void forget_oldest_removed(struct state *st)
{
	const struct removed_record *oldest = NULL;
	struct tree_cursor cursor;
	uint8_t key[8];

	for (struct tree_record *r = tree_first(&cursor, &st->removed); r; r = tree_next(&cursor)) {
		const struct removed_record *m = (const struct removed_record *)r;

		if (!oldest || m->index < oldest->index)
			oldest = m;
	}
	memcpy(key, oldest->key, sizeof(key));
	tree_remove(&st->removed, slice_of(key, sizeof(key)));
}

static void take_out(struct state *st, member_id id, uint64_t index)
{
	uint8_t key[8];

	member_put_key(id, key);
	tree_remove(&st->members, slice_of(key, sizeof(key)));
	if (st->removed.len >= MEMBER_REMOVED_MAX)
		forget_oldest_removed(st);
	tree_put_take(&st->removed, &removed_record_new(id, index)->base);
}

static void edit(struct state *st, const struct member_change *ch, struct url_list peers)
{
	uint8_t key[8];
	struct member_record *r;

	member_put_key(ch->id, key);
	r = (struct member_record *)tree_edit_begin(&st->members, slice_of(key, sizeof(key)));
	if (ch->kind == KIND(UPDATE))
		member_record_set_peer_urls(r, peers);
	else if (ch->kind == KIND(LEAVE))
		r->leaving = true;
	else
		r->learner = r->joining = false;
	tree_edit_end(&st->members, &r->base);
}

enum err member_change_apply(struct state *st, const struct member_change *ch, uint64_t index)
{
	enum err e = member_change_check(st, ch);
	const char **sorted;
	struct url_list peers;

	if (e)
		return e;
	sorted = sorted_urls(ch);
	peers = (struct url_list){ .at = sorted, .len = ch->peer_urls_len };
	if (ch->kind == KIND(ADD_LEARNER) || ch->kind == KIND(ADD_VOTER))
		add(st, ch, peers);
	else if (ch->kind == KIND(REMOVE))
		take_out(st, ch->id, index);
	else
		edit(st, ch, peers);
	free(sorted);
	return ERR_OK;
}
