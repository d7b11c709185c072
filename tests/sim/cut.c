/* cut.c: which pieces of a run are left out, as flags say it. */
#include "plan.h"

static const char *const names[PIECE_COUNT] = {
	[PIECE_REPLICA] = "replica", [PIECE_CLIENT] = "client", [PIECE_WATCHER] = "watcher", [PIECE_CACHER] = "cacher", [PIECE_USER] = "user",
	[PIECE_CRASH] = "crash", [PIECE_PARTITION] = "partition", [PIECE_LINK] = "link", [PIECE_PAUSE] = "pause", [PIECE_STALL] = "stall",
	[PIECE_SLOW] = "slow", [PIECE_STORM] = "storm", [PIECE_CUT] = "clients-cut", [PIECE_PEER_LOST] = "peer-lost", [PIECE_GARBAGE] = "garbage",
	[PIECE_TRANSFER] = "transfer", [PIECE_STOP] = "stop", [PIECE_SPACE] = "space", [PIECE_WIPE] = "wipe", [PIECE_DAMAGE] = "damage",
	[PIECE_FAIL_OVER] = "fail-over", [PIECE_LAST_CRASH] = "last-crash", [PIECE_CHANGE] = "change",
	[PIECE_LOSS] = "loss", [PIECE_DUPLICATES] = "duplicates", [PIECE_LATE] = "late", [PIECE_REORDER] = "reorder", [PIECE_JITTER] = "jitter",
	[PIECE_CALL_LOSS] = "call-loss", [PIECE_CLOCKS] = "clocks", [PIECE_SNAPSHOTS] = "snapshots", [PIECE_CHUNKS] = "chunks",
	[PIECE_INSTALL_CRASHES] = "install-crashes", [PIECE_COMPACTION] = "compaction", [PIECE_BIG_VALUES] = "big-values", [PIECE_LIMITS] = "limits",
	[PIECE_SHORT_LOG] = "short-log", [PIECE_LINE] = "line", [PIECE_SLOTS] = "slots", [PIECE_MEMBERS] = "members", [PIECE_FREEZES] = "freezes",
	[PIECE_REQUEST_IDS] = "request-ids",
	[PIECE_PUT] = "put", [PIECE_DELETE] = "delete", [PIECE_GET] = "get", [PIECE_GET_SERIALIZABLE] = "get-serializable", [PIECE_RANGE] = "range",
	[PIECE_CAS] = "cas", [PIECE_COMPACT] = "compact", [PIECE_TTL] = "ttl", [PIECE_LEADER] = "leader", [PIECE_LOCK] = "lock",
	[PIECE_CAMPAIGN] = "campaign", [PIECE_RECIPE] = "recipe", [PIECE_LOCK_WITHOUT_LEASE] = "lock-without-lease", [PIECE_USER_READS] = "user-reads",
	[PIECE_USER_WRITES] = "user-writes", [PIECE_USER_FOLLOWS] = "user-follows", [PIECE_USER_LOCKS] = "user-locks",
	[PIECE_USER_OBSERVES] = "user-observes",
};

const char *piece_name(enum piece p)
{
	return names[p];
}

bool cut_has(const struct cut *c, enum piece p, uint32_t number)
{
	if (c->whole[p])
		return true;
	return number < CUT_NUMBERS ? c->out[p][number / 64] >> number % 64 & 1 : c->rest[p];
}

void cut_set(struct cut *c, enum piece p, uint32_t number, bool out)
{
	uint64_t bit = UINT64_C(1) << number % 64;

	ASSERT(number < CUT_NUMBERS);
	if (out)
		c->out[p][number / 64] |= bit;
	else
		c->out[p][number / 64] &= ~bit;
}

bool cut_is_empty(const struct cut *c)
{
	static const struct cut empty;

	return memcmp(c, &empty, sizeof empty) == 0;
}

/* ---- from flags ---- */

static bool find_piece(const char *name, size_t len, enum piece *ret)
{
	for (unsigned p = 0; p < PIECE_COUNT; p++) {
		if (strlen(names[p]) == len && memcmp(names[p], name, len) == 0) {
			*ret = (enum piece)p;
			return true;
		}
	}
	return false;
}

/* FROM or FROM-TO */
static bool parse_range(const char *text, size_t len, uint32_t *ret_from, uint32_t *ret_to)
{
	uint32_t at[2] = { 0, 0 };
	size_t n = 0, digits = 0;

	for (size_t i = 0; i < len; i++) {
		if (text[i] >= '0' && text[i] <= '9' && at[n] < CUT_NUMBERS) {
			at[n] = at[n] * 10 + (uint32_t)(text[i] - '0');
			digits++;
		} else if (text[i] == '-' && n == 0 && digits > 0) {
			n = 1;
			digits = 0;
		} else {
			return false;
		}
	}
	*ret_from = at[0];
	*ret_to = at[n];
	return digits > 0 && at[0] <= at[n] && at[n] < CUT_NUMBERS;
}

static bool parse_one(struct cut *c, const char *word, size_t len, bool only, bool *seen)
{
	const char *colon = memchr(word, ':', len);
	size_t name_len = colon ? (size_t)(colon - word) : len;
	uint32_t from, to;
	enum piece p;

	if (!find_piece(word, name_len, &p) || (only && !colon))
		return false;
	if (!colon) {
		c->whole[p] = true;
		return true;
	}
	if (p >= PIECE_NUMBERED_END || !parse_range(colon + 1, len - name_len - 1, &from, &to))
		return false;
	if (only && !seen[p]) {
		memset(c->out[p], 0xff, sizeof c->out[p]);
		c->rest[p] = true;
		seen[p] = true;
	}
	for (uint32_t n = from; n <= to; n++)
		cut_set(c, p, n, !only);
	return true;
}

bool cut_parse(struct cut *c, const char *list, bool only, char text[96])
{
	bool seen[PIECE_COUNT] = { false };

	for (const char *at = list;;) {
		size_t len = strcspn(at, ",");

		if (!parse_one(c, at, len, only, seen)) {
			snprintf(text, 96, "there is no '%.*s' to %s", (int)(len < 40 ? len : 40), at, only ? "have alone (NAME:NUMBER)" : "leave out");
			return false;
		}
		if (!at[len])
			return true;
		at += len + 1;
	}
}

/* ---- as flags ---- */

static void print_numbers(const struct cut *c, enum piece p, uint32_t first, uint32_t end, bool out, const char **between, FILE *to)
{
	for (uint32_t a = first, b; a < end; a = b + 1) {
		for (b = a; b < end && cut_has(c, p, b) == out; b++)
			;
		if (b == a)
			continue;
		fprintf(to, b == a + 1 ? "%s%s:%u" : "%s%s:%u-%u", *between, names[p], a, b - 1);
		*between = ",";
	}
}

/* Clients and their like are numbered from 0, as the trace has them. */
static uint32_t first_of(enum piece p)
{
	return p >= PIECE_CLIENT && p <= PIECE_USER ? 0 : 1;
}

static uint32_t count_out(const struct cut *c, enum piece p, uint32_t count)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++)
		n += cut_has(c, p, first_of(p) + i);
	return n;
}

void cut_print(const struct cut *c, const uint32_t counts[PIECE_NUMBERED_END], FILE *to)
{
	const char *without = " --without ", *only = " --only ";

	for (unsigned p = 0; p < PIECE_COUNT; p++) {
		uint32_t count = p < PIECE_NUMBERED_END ? counts[p] : 0, out = c->whole[p] ? count : count_out(c, (enum piece)p, count);

		if (c->whole[p] || (count > 0 && out == count)) {
			fprintf(to, "%s%s", without, names[p]);
			without = ",";
		} else if (out > 0 && 2 * out <= count) {
			print_numbers(c, (enum piece)p, first_of((enum piece)p), first_of((enum piece)p) + count, true, &without, to);
		}
	}
	for (unsigned p = 0; p < PIECE_NUMBERED_END; p++) {
		uint32_t out = c->whole[p] ? counts[p] : count_out(c, (enum piece)p, counts[p]);

		if (out < counts[p] && 2 * out > counts[p])
			print_numbers(c, (enum piece)p, first_of((enum piece)p), first_of((enum piece)p) + counts[p], false, &only, to);
	}
}
