/* place.c: which replica the session's stream is at: when one is left, and for which.
 *
 *   (T1) each stream has a higher number than all before it, and its resume says so. The cell lets none take the session over from a higher one: what was given up
 *        here may be carried out there later, and changes nothing.
 *   (T2) a replica that is heard is not left for its silence. Heard is any message of the stream, and the answer to a probe: also one that says that it does not
 *        serve now. It keeps what was sent to it, and carries it out as soon as there is a leader.
 *   (T3) silent is one that was asked something and was not heard for as long as our patience. Our own standing still is not its silence.
 *   (T4) before it may be left, for half as long, all replicas have been probed: so it is known which of them live.
 *   (T5) one that is heard is left only for one that serves: after the patience when it does not serve itself (it may be cut off from the others), after twice
 *        as long when it says that it does, and yet does not answer the session.
 *   (T6) the next is one that serves, else one that was heard, else one of which nothing is known, else one that refused, and last of all one that is silent; that
 *        is remembered for SILENT_MS. Among equals chance decides, so that those who leave one replica do not all go to the same.
 * Probes are about replicas, not about sessions: whoever runs the core may ask once for the thousands of sessions that share a connection. */
#include <stdlib.h>

#include "base/mem.h"
#include "internal.h"

enum rank { RANK_SILENT, RANK_FAILED, RANK_UNKNOWN, RANK_HEARD, RANK_SERVES };

void places_init(struct sess *s)
{
	s->places = mem_zalloc(s->endpoints * sizeof(*s->places));
}

uint64_t sess_patience_ms(const struct sess *s)
{
	uint64_t p = (uint64_t)(s->ttl_s ? s->ttl_s : s->asked_ttl_s ? s->asked_ttl_s : TTL_USUAL_S) * 1000 / 5;
	if (p > PATIENCE_MAX_MS)
		return PATIENCE_MAX_MS;
	if (!s->id && p < PATIENCE_OPEN_MS) /* it may have to be connected, and no clock runs yet */
		return PATIENCE_OPEN_MS;
	return p < PATIENCE_MIN_MS ? PATIENCE_MIN_MS : p;
}

/* ---- what is known ---- */

void place_asked(struct sess *s, uint32_t at)
{
	if (!s->places[at].asked_ms)
		s->places[at].asked_ms = s->now;
}

void place_heard(struct sess *s, uint32_t at, bool serves)
{
	s->places[at].heard_ms = s->now;
	s->places[at].asked_ms = 0;
	s->places[at].serves = serves;
}

void place_failed(struct sess *s)
{
	s->places[s->endpoint].failed_ms = s->now;
}

/* T3 */
void places_stood_still(struct sess *s)
{
	for (uint32_t i = 0; i < s->endpoints; i++) {
		if (s->places[i].asked_ms)
			s->places[i].asked_ms = s->now;
	}
}

static bool is_silent(const struct sess *s, const struct place *p)
{
	bool remembered = p == &s->places[s->endpoint] || s->now - s->probed_ms < SILENT_MS;
	return remembered && p->asked_ms && s->now - p->asked_ms >= sess_patience_ms(s);
}

static bool is_recent(const struct sess *s, uint64_t ms)
{
	return ms && s->now - ms <= sess_patience_ms(s);
}

static enum rank rank_of(const struct sess *s, const struct place *p)
{
	if (is_silent(s, p))
		return RANK_SILENT;
	if (p->failed_ms && p->failed_ms >= p->heard_ms && s->now - p->failed_ms < FAILED_MS)
		return RANK_FAILED;
	if (!is_recent(s, p->heard_ms))
		return RANK_UNKNOWN;
	return p->serves ? RANK_SERVES : RANK_HEARD;
}

/* ---- asking ---- */

static void probe_all(struct sess *s)
{
	for (uint32_t i = 0; i < s->endpoints; i++) {
		if (i != s->endpoint && s->now - s->probed_ms >= SILENT_MS)
			s->places[i].asked_ms = 0;
		place_asked(s, i);
		sess_out(s, SESS_PROBE)->endpoint = i;
	}
	s->probed_ms = s->now;
}

/* T4 */
static uint64_t probe_at(const struct sess *s, uint64_t waits_since)
{
	uint64_t half = sess_patience_ms(s) / 2;
	return (s->probed_ms > waits_since ? s->probed_ms : waits_since) + half;
}

/* ---- leaving: T2, T5 ---- */

static bool another_serves(const struct sess *s)
{
	for (uint32_t i = 0; i < s->endpoints; i++) {
		if (i != s->endpoint && rank_of(s, &s->places[i]) == RANK_SERVES)
			return true;
	}
	return false;
}

bool place_is_left(struct sess *s, uint64_t waits_since)
{
	const struct place *p = &s->places[s->endpoint];
	uint64_t patience = sess_patience_ms(s), waits;
	if (!waits_since)
		return false;
	if (s->now >= probe_at(s, waits_since))
		probe_all(s);
	if (is_silent(s, p))
		return true;
	waits = s->now - waits_since;
	return waits >= (p->serves ? 2 * patience : patience) && another_serves(s);
}

static void earlier(const struct sess *s, uint64_t at, uint64_t *t)
{
	if (at > s->now && at < *t)
		*t = at;
}

uint64_t place_next_ms(const struct sess *s, uint64_t waits_since)
{
	uint64_t t = SESS_NEVER, patience = sess_patience_ms(s);
	if (!waits_since)
		return t;
	earlier(s, probe_at(s, waits_since), &t);
	earlier(s, waits_since + patience, &t);
	earlier(s, waits_since + 2 * patience, &t);
	if (s->places[s->endpoint].asked_ms)
		earlier(s, s->places[s->endpoint].asked_ms + patience, &t);
	return t;
}

/* T6. The present one only when it is better than all others, and is not left although it serves. */
uint32_t place_choose(struct sess *s)
{
	enum rank best = RANK_SILENT, r, here = rank_of(s, &s->places[s->endpoint]);
	uint32_t equals = 0, chosen = s->endpoint;
	for (uint32_t i = 0; i < s->endpoints; i++) {
		if (i == s->endpoint)
			continue;
		r = rank_of(s, &s->places[i]);
		if (r > best) {
			best = r;
			equals = 0;
		}
		if (r == best && rng_below(&s->rng, ++equals) == 0)
			chosen = i;
	}
	return here > best ? s->endpoint : chosen;
}
