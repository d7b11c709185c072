/* kit.h: a session core with the cell played by hand. */
#ifndef HOLDFAST_TESTS_SESS_KIT_H
#define HOLDFAST_TESTS_SESS_KIT_H

#include <check.h>

#include "holdfast/v1.pb-c.h"
#include "sess.h"

#define TTL 12
#define LEASE 77
#define LEASE_MS (TTL * 1000 - TTL * 10 - 2) /* from when it was sent */

struct kit {
	struct sess *s;
	uint64_t now;
	struct sess_update u; /* all since kit_take, in order */
	size_t at;            /* looked at by kit_next */
};

extern struct kit kit;
void kit_setup_under(const char *prefix); /* that alone may be cached */
void kit_setup_at(uint32_t endpoints);
void kit_setup(void);    /* new, not open; two endpoints; caches "/" */
void kit_open(void);     /* and open at term 5, revision 100 */
void kit_teardown(void);
void kit_step(struct sess_event e);
void kit_ask(struct sess_ask a);
void kit_at(uint64_t ms); /* lets time pass to then, with a tick */
/* The next update of that kind, others passed over; fails when there is none. */
struct sess_out *kit_next(enum sess_out_kind kind);
bool kit_any(enum sess_out_kind kind); /* among those not passed over */
Holdfast__V1__SessionRequest *kit_sent(int request_case); /* the next one sent; free_unpacked it */
void kit_sent_free(Holdfast__V1__SessionRequest *m);
uint64_t kit_stream(void); /* the number of the last CONNECT */

void kit_tell(Holdfast__V1__SessionResponse m);
void kit_kept_alive(uint64_t sequence, uint64_t term, bool cache);
uint64_t kit_keep_alive_sequence(void); /* of the next one sent */
void kit_invalidate(uint64_t number, uint64_t term, const char *path, bool all);
void kit_reply(const struct sess_out *call, int status, const char *text, const ProtobufCMessage *m);
void kit_value(const struct sess_out *call, const char *path, const char *value, int64_t mod, uint64_t grant_term);
/* Asks for a path and has the answer cached. */
void kit_cache(const char *path, const char *value, int64_t mod);
bool kit_cached(const char *path);

#endif
