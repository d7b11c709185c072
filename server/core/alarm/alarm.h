/* alarm.h: what is wrong with the cell, as agreed by the log: etcd's alarms, one record for a member and a kind.
 *
 *   (L1) while any NOSPACE is up, what grows the store is refused (intake.c). One that the cell raised itself, it also clears itself.
 *   (L2) a replica that finds CORRUPT up against itself stops; one against member 0 means the cell, and nobody serves.
 *   (L3) there are at most ALARMS_MAX: an operator may name any member, so the table needs a bound of its own.
 */
#ifndef HOLDFAST_CORE_ALARM_H
#define HOLDFAST_CORE_ALARM_H

#include "core/state.h"

#define ALARMS_MAX 64

/* etcdserverpb.AlarmType */
#define ALARM_NONE 0u
#define ALARM_NOSPACE 1u
#define ALARM_CORRUPT 2u

struct alarm_record {
	struct tree_record base;
	member_id member; /* 0: the cell as a whole */
	uint32_t type;    /* ALARM_... */
	bool automatic;   /* raised by the cell itself */
	uint8_t key[12];  /* type, member; big-endian */
};
extern const struct tree_type alarm_record_type;

const struct alarm_record *alarm_find(const struct state *st, uint32_t type, member_id member); /* lent; NULL */
/* The first of a type (ALARM_NONE: of any) behind `after`, which may be NULL: lent until the next change; NULL at the end. */
const struct alarm_record *alarm_next(const struct state *st, uint32_t type, const struct alarm_record *after);

/* From applied commands only. An alarm that is up stays as it is. ERR_ALARM_TYPE: not one that may be raised; ERR_TOO_MANY_REQUESTS: L3. */
enum err alarm_raise(struct state *st, uint32_t type, member_id member, bool automatic);
bool alarm_clear(struct state *st, uint32_t type, member_id member); /* whether it was up */

/* internal.AlarmCommand, from an applied entry; reply (may be NULL) gets an AlarmResponse's alarms. ERR_MALFORMED and as above. */
enum err alarm_apply(struct state *st, struct slice payload, struct buf *reply);
void alarm_write(const struct alarm_record *a, struct buf *out); /* as field 2 of AlarmResponse */

#endif
