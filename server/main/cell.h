/* cell.h: which cell this replica belongs to, and as whom: from the command line when the cell is new, from its peers when it joins one, from its
 * data directory ever after. */
#ifndef HOLDFAST_MAIN_CELL_H
#define HOLDFAST_MAIN_CELL_H

#include "base/hash.h"
#include "core/state.h"
#include "net/tls.h"
#include "options.h"

struct cell {
	uint64_t cell_id;
	member_id self;
	bool joined;          /* it came to a cell that existed */
	struct state initial; /* of the new cell, before its first entry: equal on all replicas that there will ever be */
	char *token;          /* of a restored one; owned */
	struct buf origin;    /* all this but for self, packed (internal.CellInfo), to be kept in the data directory and told to who joins */
};

void cell_init(struct cell *c);
void cell_free(struct cell *c);
void cell_from_options(struct cell *c, const struct options *o);
/* Of a new cell that is restored from a backup with this checksum: its token is made of both, so that neither the cell nor its members are those of before,
 * even if all names and addresses are; and later starts need not be told. */
void cell_from_backup(struct cell *c, const struct options *o, const uint8_t checksum[SHA256_BYTES]);
const char *cell_backup_token(const struct cell *c); /* that token; lives as the cell */
/* What an earlier start has kept. ERR_CORRUPT with em. self is not in it. */
enum err cell_from_origin(struct cell *c, struct slice origin, struct errmsg *em);
/* Asks the other members of --initial-cluster, until one of them knows of this member or patience is over. ERR_NOT_FOUND, ERR_WRONG_CELL, ERR_WRONG_MEMBER with em. */
enum err cell_join(struct cell *c, const struct options *o, struct tls_context *tls, struct errmsg *em); /* tls: of peers, or NULL */
/* What this replica tells who joins. */
void cell_info(const struct cell *c, const struct state *now, struct buf *ret);

#endif
