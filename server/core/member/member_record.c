/* member_record.c: one member as a record of the tree.
 *
 * On disk it is a packed internal.MemberRecord, its fields in order and defaults left out, so that equal records are equal bytes. What is
 * read must be just what we would write: anything else (a field we do not know, a NUL within a name, bytes in another order) would give
 * a replica a state that it believes equal and is not. The hash is that of these bytes; members are few and change rarely. */
#include "core/member/member_record.h"

#include <endian.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "holdfast/internal.pb-c.h"

enum { /* of internal.MemberRecord */
	FIELD_ID = 1,
	FIELD_NAME = 2,
	FIELD_PEER_URLS = 3,
	FIELD_CLIENT_URLS = 4,
	FIELD_LEARNER = 5,
	FIELD_DATA_DIR_ID = 6,
	FIELD_JOINING = 7,
	FIELD_LEAVING = 8,
};

static const struct member_record *record_of(const struct tree_record *r)
{
	return (const struct member_record *)r;
}

void member_put_key(member_id id, uint8_t ret_key[8])
{
	uint64_t be = htobe64(id);

	memcpy(ret_key, &be, sizeof(be));
}

static char *copy_str(const char *str)
{
	size_t size = strlen(str) + 1;

	return memcpy(mem_alloc(size), str, size);
}

static char **copy_urls(struct url_list urls)
{
	char **copy = mem_alloc(urls.len * sizeof(*copy));

	for (size_t i = 0; i < urls.len; i++)
		copy[i] = copy_str(urls.at[i]);
	return copy;
}

static void free_urls(char **urls, size_t len)
{
	for (size_t i = 0; i < len; i++)
		free(urls[i]);
	free(urls);
}

static struct url_list url_list_of(char *const *urls, size_t len)
{
	return (struct url_list){ .at = (const char *const *)urls, .len = len };
}

bool member_name_fits(const char *name)
{
	return strlen(name) <= MEMBER_NAME_MAX;
}

bool member_urls_fit(struct url_list urls)
{
	if (urls.len > MEMBER_URLS_MAX)
		return false;
	for (size_t i = 0; i < urls.len; i++)
		if (urls.at[i][0] == '\0' || strlen(urls.at[i]) > MEMBER_URL_BYTES_MAX)
			return false;
	return true;
}

struct member_record *member_record_new(member_id id, const char *name, struct url_list peers, struct url_list clients)
{
	struct member_record *r = mem_zalloc(sizeof(*r));

	r->base.refs = 1;
	r->id = id;
	r->name = copy_str(name);
	r->peer_urls = copy_urls(peers);
	r->peer_urls_len = peers.len;
	r->client_urls = copy_urls(clients);
	r->client_urls_len = clients.len;
	member_put_key(id, r->key);
	return r;
}

void member_record_set_name(struct member_record *r, const char *name)
{
	char *old = r->name;

	r->name = copy_str(name);
	free(old);
}

void member_record_set_client_urls(struct member_record *r, struct url_list clients)
{
	char **old = r->client_urls;
	size_t old_len = r->client_urls_len;

	r->client_urls = copy_urls(clients);
	r->client_urls_len = clients.len;
	free_urls(old, old_len);
}

void member_record_set_peer_urls(struct member_record *r, struct url_list peers)
{
	char **old = r->peer_urls;
	size_t old_len = r->peer_urls_len;

	r->peer_urls = copy_urls(peers);
	r->peer_urls_len = peers.len;
	free_urls(old, old_len);
}

static struct slice member_record_key(const struct tree_record *r)
{
	return slice_of(record_of(r)->key, sizeof(record_of(r)->key));
}

static struct tree_record *member_record_clone(const struct tree_record *r)
{
	const struct member_record *m = record_of(r);
	struct member_record *copy = member_record_new(m->id, m->name, url_list_of(m->peer_urls, m->peer_urls_len),
						       url_list_of(m->client_urls, m->client_urls_len));

	copy->learner = m->learner;
	copy->joining = m->joining;
	copy->leaving = m->leaving;
	copy->data_dir_id = m->data_dir_id;
	return &copy->base;
}

static void member_record_free(struct tree_record *r)
{
	struct member_record *m = (struct member_record *)r;

	free_urls(m->peer_urls, m->peer_urls_len);
	free_urls(m->client_urls, m->client_urls_len);
	free(m->name);
	free(m);
}

static void member_record_encode(const struct tree_record *r, struct buf *out)
{
	const struct member_record *m = record_of(r);

	pbw_fixed64(out, FIELD_ID, m->id);
	pbw_bytes(out, FIELD_NAME, slice_of_str(m->name));
	for (size_t i = 0; i < m->peer_urls_len; i++)
		pbw_bytes_always(out, FIELD_PEER_URLS, slice_of_str(m->peer_urls[i]));
	for (size_t i = 0; i < m->client_urls_len; i++)
		pbw_bytes_always(out, FIELD_CLIENT_URLS, slice_of_str(m->client_urls[i]));
	pbw_u64(out, FIELD_LEARNER, m->learner);
	pbw_fixed64(out, FIELD_DATA_DIR_ID, m->data_dir_id);
	pbw_u64(out, FIELD_JOINING, m->joining);
	pbw_u64(out, FIELD_LEAVING, m->leaving);
}

static uint64_t member_record_hash(const struct tree_record *r)
{
	struct buf b = { 0 };
	uint64_t hash;

	member_record_encode(r, &b);
	hash = hash64(SECTION_MEMBERS, b.ptr, b.len);
	buf_free(&b);
	return hash;
}

static bool encodes_to(const struct tree_record *r, struct slice bytes)
{
	struct buf b = { 0 };
	bool same;

	member_record_encode(r, &b);
	same = slice_eq(buf_view(&b), bytes);
	buf_free(&b);
	return same;
}

static struct member_record *from_message(const Holdfast__Internal__MemberRecord *pb)
{
	struct url_list peers = url_list_of(pb->peer_urls, pb->n_peer_urls);
	struct url_list clients = url_list_of(pb->client_urls, pb->n_client_urls);
	struct member_record *r;

	if (pb->id == 0 || pb->learner + pb->joining + pb->leaving > 1 || !member_name_fits(pb->name) || !member_urls_fit(peers) || !member_urls_fit(clients))
		return NULL;
	r = member_record_new(pb->id, pb->name, peers, clients);
	r->learner = pb->learner;
	r->joining = pb->joining;
	r->leaving = pb->leaving;
	r->data_dir_id = pb->data_dir_id;
	return r;
}

static enum err member_record_decode(struct slice bytes, struct tree_record **ret)
{
	Holdfast__Internal__MemberRecord *pb;
	struct member_record *r = NULL;
	struct arena a;

	if (pb_check(&holdfast__internal__member_record__descriptor, bytes, /*max_depth=*/0) != PB_CHECK_OK)
		return ERR_CORRUPT;
	arena_init(&a);
	pb = holdfast__internal__member_record__unpack(&a.pb, bytes.len, bytes.ptr);
	if (pb)
		r = from_message(pb);
	arena_deinit(&a);
	if (r && !encodes_to(&r->base, bytes)) {
		member_record_free(&r->base);
		r = NULL;
	}
	if (!r)
		return ERR_CORRUPT;
	*ret = &r->base;
	return ERR_OK;
}

const struct tree_type member_record_type = {
	.section = SECTION_MEMBERS,
	.version = 1,
	.key = member_record_key,
	.clone = member_record_clone,
	.free = member_record_free,
	.hash = member_record_hash,
	.encode = member_record_encode,
	.decode = member_record_decode,
};
