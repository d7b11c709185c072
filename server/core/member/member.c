/* member.c: who belongs to the cell, as agreed by the log.
 *
 *   (B1) a member's data directory is bound by the first publish that names one, and never changes: whoever comes with another one is
 *        not the member whose promises are on record, however right its name and addresses are.
 *   (B2) peer addresses are kept sorted, as etcd lists them; client addresses as they were published. */
#include "core/member/member.h"

#include "base/mem.h"
#include "core/member/member_record.h"

const struct member_record *member_find(const struct state *st, member_id id)
{
	uint8_t key[8];

	member_put_key(id, key);
	return (const struct member_record *)tree_get(&st->members, slice_of(key, sizeof(key)));
}

void member_add_initial(struct state *st, const struct member_spec *spec, const char *token)
{
	const char **sorted = mem_alloc(spec->peer_urls_len * sizeof(*sorted));
	struct url_list peers = { .at = sorted, .len = spec->peer_urls_len };
	member_id id = member_derive_id(spec->peer_urls, spec->peer_urls_len, token);

	ASSERT(!member_find(st, id));
	for (size_t i = 0; i < peers.len; i++)
		sorted[i] = spec->peer_urls[i];
	member_sort_urls(sorted, peers.len);
	ASSERT(member_urls_fit(peers));
	ASSERT(member_name_fits(spec->name ? spec->name : ""));
	tree_put_take(&st->members, &member_record_new(id, spec->name ? spec->name : "", peers, (struct url_list){ 0 })->base);
	free(sorted);
}

enum err member_publish(struct state *st, member_id id, const char *name, const char *const *client_urls, size_t len, uint64_t data_dir_id)
{
	const struct member_record *now = member_find(st, id);
	struct url_list clients = { .at = client_urls, .len = len };
	struct member_record *r;

	if (!now)
		return ERR_MEMBER_NOT_FOUND;
	if (now->data_dir_id != 0 && now->data_dir_id != data_dir_id)
		return ERR_WRONG_MEMBER;
	if (!member_name_fits(name) || !member_urls_fit(clients))
		return ERR_MEMBER_BAD_URLS;
	r = (struct member_record *)tree_edit_begin(&st->members, slice_of(now->key, sizeof(now->key)));
	r->data_dir_id = data_dir_id;
	member_record_set_name(r, name);
	member_record_set_client_urls(r, clients);
	tree_edit_end(&st->members, &r->base);
	return ERR_OK;
}
