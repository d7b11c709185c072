/* alarm.c: alarms as records of a tree.
 *
 * On disk a record is a packed internal.AlarmRecord, its fields in order and defaults left out; what is read must be just what we would
 * write. Alarms are few: whoever looks for one type walks to it. */
#include "core/alarm/alarm.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/pbw.h"
#include "core/wire.h"
#include "etcd/rpc.pb-c.h"

static const struct alarm_record *record_of(const struct tree_record *r)
{
	return (const struct alarm_record *)r;
}

static void put_key(uint32_t type, member_id member, uint8_t ret[12])
{
	for (unsigned i = 0; i < 4; i++)
		ret[i] = (uint8_t)(type >> (24 - 8 * i));
	for (unsigned i = 0; i < 8; i++)
		ret[4 + i] = (uint8_t)(member >> (56 - 8 * i));
}

static struct alarm_record *record_new(uint32_t type, member_id member, bool automatic)
{
	struct alarm_record *a = mem_zalloc(sizeof(*a));

	a->base.refs = 1;
	a->type = type;
	a->member = member;
	a->automatic = automatic;
	put_key(type, member, a->key);
	return a;
}

static struct slice alarm_key(const struct tree_record *r)
{
	return slice_of(record_of(r)->key, sizeof(record_of(r)->key));
}

static struct tree_record *alarm_clone(const struct tree_record *r)
{
	const struct alarm_record *a = record_of(r);

	return &record_new(a->type, a->member, a->automatic)->base;
}

static void alarm_free(struct tree_record *r)
{
	free(r);
}

static void alarm_encode(const struct tree_record *r, struct buf *out)
{
	const struct alarm_record *a = record_of(r);

	pbw_fixed64(out, 1, a->member);
	pbw_u64(out, 2, a->type);
	pbw_u64(out, 3, a->automatic);
}

static uint64_t alarm_hash(const struct tree_record *r)
{
	const struct alarm_record *a = record_of(r);

	return hash64(SECTION_ALARMS + a->automatic, a->key, sizeof(a->key));
}

static bool encodes_to(const struct alarm_record *a, struct slice bytes)
{
	struct buf b = { 0 };
	bool same;

	alarm_encode(&a->base, &b);
	same = slice_eq(buf_view(&b), bytes);
	buf_free(&b);
	return same;
}

static enum err alarm_decode(struct slice bytes, struct tree_record **ret)
{
	uint64_t type = wire_find_u64(bytes, 2, 0);
	struct alarm_record *a;

	if (type != ALARM_NOSPACE && type != ALARM_CORRUPT)
		return ERR_CORRUPT;
	a = record_new((uint32_t)type, wire_find_u64(bytes, 1, 0), wire_find_u64(bytes, 3, 0) != 0);
	if (!encodes_to(a, bytes)) {
		alarm_free(&a->base);
		return ERR_CORRUPT;
	}
	*ret = &a->base;
	return ERR_OK;
}

const struct tree_type alarm_record_type = {
	.section = SECTION_ALARMS,
	.version = 1,
	.key = alarm_key,
	.clone = alarm_clone,
	.free = alarm_free,
	.hash = alarm_hash,
	.encode = alarm_encode,
	.decode = alarm_decode,
};

const struct alarm_record *alarm_find(const struct state *st, uint32_t type, member_id member)
{
	uint8_t key[12];

	put_key(type, member, key);
	return (const struct alarm_record *)tree_get(&st->alarms, slice_of(key, sizeof(key)));
}

const struct alarm_record *alarm_next(const struct state *st, uint32_t type, const struct alarm_record *after)
{
	struct tree_cursor c;
	struct tree_record *r;

	if (after) {
		r = tree_seek(&c, &st->alarms, slice_of(after->key, sizeof(after->key)));
		if (r && slice_eq(alarm_key(r), slice_of(after->key, sizeof(after->key))))
			r = tree_next(&c);
	} else {
		r = tree_first(&c, &st->alarms);
	}
	while (r && type != ALARM_NONE && record_of(r)->type != type)
		r = tree_next(&c);
	return record_of(r);
}

enum err alarm_raise(struct state *st, uint32_t type, member_id member, bool automatic)
{
	if (type != ALARM_NOSPACE && type != ALARM_CORRUPT)
		return ERR_ALARM_TYPE;
	if (alarm_find(st, type, member))
		return ERR_OK;
	if (st->alarms.len >= ALARMS_MAX)
		return ERR_TOO_MANY_REQUESTS;
	tree_put_take(&st->alarms, &record_new(type, member, automatic)->base);
	return ERR_OK;
}

bool alarm_clear(struct state *st, uint32_t type, member_id member)
{
	uint8_t key[12];

	put_key(type, member, key);
	return tree_remove(&st->alarms, slice_of(key, sizeof(key)));
}

/* ---- the command ---- */

void alarm_write(const struct alarm_record *a, struct buf *out)
{
	size_t mark = pbw_open(out, 2);

	pbw_u64(out, 1, a->member);
	pbw_u64(out, 2, a->type);
	pbw_close(out, mark);
}

struct command {
	uint64_t action, member, type;
	bool automatic;
};

static enum err raise_one(struct state *st, const struct command *cmd, struct buf *reply)
{
	enum err e = alarm_raise(st, (uint32_t)cmd->type, cmd->member, cmd->automatic);

	if (!e && reply)
		alarm_write(alarm_find(st, (uint32_t)cmd->type, cmd->member), reply);
	return e;
}

static void clear_all(struct state *st, const struct command *cmd, struct buf *reply)
{
	const struct alarm_record *a = NULL;
	struct alarm_record at;

	while ((a = alarm_next(st, (uint32_t)cmd->type, a))) {
		at = *a;
		a = &at; /* the walk goes on by key: what it stands on may go */
		if ((cmd->member != 0 && at.member != cmd->member) || (cmd->automatic && !at.automatic))
			continue;
		if (reply)
			alarm_write(&at, reply);
		alarm_clear(st, at.type, at.member);
	}
}

enum err alarm_apply(struct state *st, struct slice payload, struct buf *reply)
{
	struct command cmd = {
		.action = wire_find_u64(payload, 1, 0),
		.member = wire_find_u64(payload, 2, 0),
		.type = wire_find_u64(payload, 3, ALARM_NONE),
		.automatic = wire_find_u64(payload, 4, 0) != 0,
	};

	if (cmd.type > ALARM_CORRUPT)
		return ERR_ALARM_TYPE;
	if (cmd.action == ETCDSERVERPB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE)
		return raise_one(st, &cmd, reply);
	if (cmd.action != ETCDSERVERPB__ALARM_REQUEST__ALARM_ACTION__DEACTIVATE)
		return ERR_MALFORMED;
	clear_all(st, &cmd, reply);
	return ERR_OK;
}
