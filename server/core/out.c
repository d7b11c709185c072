/* out.c: the update under way, and its release. */
#include "internal.h"

void *vec_grow(void **at, size_t *len, size_t *cap, size_t size)
{
	if (*len == *cap) {
		*cap = *cap ? *cap * 2 : 16;
		*at = mem_realloc(*at, *cap * size);
	}
	memset((uint8_t *)*at + *len * size, 0, size);
	return (uint8_t *)*at + (*len)++ * size;
}

void core_update_release(struct core_update *u)
{
	for (size_t i = 0; i < u->write.entries_len; i++)
		raft_entry_unref(u->write.entries[i]);
	for (size_t i = 0; i < u->messages_len; i++)
		buf_free(&u->messages[i].bytes);
	for (size_t i = 0; i < u->answers_len; i++) {
		buf_free(&u->answers[i].reply);
		buf_free(&u->answers[i].details);
		buf_free(&u->answers[i].user);
	}
	for (size_t i = 0; i < u->outputs_len; i++)
		buf_free(&u->outputs[i].messages);
	for (size_t i = 0; i < u->jobs_len; i++)
		buf_free(&u->jobs[i].bytes);
	u->write.entries_len = u->messages_len = u->answers_len = u->outputs_len = u->jobs_len = 0;
}
