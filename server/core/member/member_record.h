/* member_record.h: for the files of this folder alone. */
#ifndef HOLDFAST_CORE_MEMBER_RECORD_H
#define HOLDFAST_CORE_MEMBER_RECORD_H

#include "core/member/member.h"

struct url_list {
	const char *const *at;
	size_t len;
};

void member_put_key(member_id id, uint8_t ret_key[8]); /* big-endian: byte order is the order of the numbers */
void member_sort_urls(const char **urls, size_t len);

/* One reference, all strings copied, addresses in the order given. */
struct member_record *member_record_new(member_id id, const char *name, struct url_list peers, struct url_list clients);
void member_record_set_name(struct member_record *r, const char *name);
void member_record_set_client_urls(struct member_record *r, struct url_list clients);
void member_record_set_peer_urls(struct member_record *r, struct url_list peers); /* in the order given */

struct removed_record *removed_record_new(member_id id, uint64_t index); /* one reference */

/* Whether they keep within the bounds of member.h. */
bool member_name_fits(const char *name);
bool member_urls_fit(struct url_list urls);

#endif
