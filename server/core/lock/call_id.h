/* call_id.h: the name of a call, which outlives it in the records of those who ask. */
#ifndef HOLDFAST_CORE_LOCK_CALL_ID_H
#define HOLDFAST_CORE_LOCK_CALL_ID_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct call_id {
	uint64_t member, boot, call; /* all 0: none */
};

static inline bool call_id_eq(struct call_id a, struct call_id b)
{
	return a.member == b.member && a.boot == b.boot && a.call == b.call;
}

/* Whether a replica was asked a before b. */
static inline bool call_id_older(struct call_id a, struct call_id b)
{
	return a.boot != b.boot ? a.boot < b.boot : a.call < b.call;
}

/* As records have it: big-endian. */
enum { CALL_ID_BYTES = 24 };

static inline void call_id_encode(struct call_id id, uint8_t ret[CALL_ID_BYTES])
{
	uint64_t be[3] = { htobe64(id.member), htobe64(id.boot), htobe64(id.call) };

	memcpy(ret, be, sizeof(be));
}

static inline struct call_id call_id_decode(const uint8_t bytes[CALL_ID_BYTES])
{
	uint64_t be[3];

	memcpy(be, bytes, sizeof(be));
	return (struct call_id){ .member = be64toh(be[0]), .boot = be64toh(be[1]), .call = be64toh(be[2]) };
}

#endif
