/* row.c: the contenders that somebody here watches, found by what never changes of one: its create_revision and its key.
 *
 *   (O1) a row exists while a call of this replica waits for its contender, or while this replica as leader keeps its bound; no longer.
 * A revision alone nearly always tells a contender; a transaction may create several at one, of different locks, so rows of one revision
 * are chained. */
#include "internal.h"

struct contender_row *row_find(const struct core *c, revision token, struct slice key)
{
	struct contender_row *row = c->waiters.rows_len ? map64_get(&c->waiters.rows, (uint64_t)token) : NULL;

	while (row && !slice_eq(slice_of(row->key, row->key_len), key))
		row = row->next;
	return row;
}

struct contender_row *row_get(struct core *c, revision token, struct slice key)
{
	struct contender_row *row = row_find(c, token, key);

	if (row)
		return row;
	row = mem_zalloc(sizeof *row + key.len);
	row->token = token;
	list_init(&row->waiters);
	row->key_len = (uint32_t)key.len;
	memcpy(row->key, key.ptr, key.len);
	row->next = map64_put(&c->waiters.rows, (uint64_t)token, row);
	c->waiters.rows_len++;
	return row;
}

static void unchain(struct core *c, struct contender_row *row)
{
	struct contender_row *first = map64_get(&c->waiters.rows, (uint64_t)row->token);

	if (first == row) {
		if (row->next)
			map64_put(&c->waiters.rows, (uint64_t)row->token, row->next);
		else
			map64_remove(&c->waiters.rows, (uint64_t)row->token);
		return;
	}
	while (first->next != row)
		first = first->next;
	first->next = row->next;
}

void row_release(struct core *c, struct contender_row *row)
{
	if (!list_empty(&row->waiters) || heap_contains(&row->bound)) /* O1 */
		return;
	unchain(c, row);
	c->waiters.rows_len--;
	free(row);
}
