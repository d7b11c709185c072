/* text.c: codes and reasons in words. */
#include "lib.h"
#include "version.h"

#define WORD(table, i) ((unsigned)(i) < sizeof(table) / sizeof((table)[0]) ? (table)[i] : "?")

const char *hf_text(enum hf_code code)
{
	static const char *const texts[] = {
		[HF_OK] = "ok",
		[HF_TIMEOUT] = "not within the time given",
		[HF_CANCELED] = "canceled",
		[HF_SESSION_LOST] = "the session is over",
		[HF_HELD] = "somebody else holds the lock",
		[HF_NOT_FOUND] = "there is none",
		[HF_EXISTS] = "there is one already",
		[HF_CONFLICT] = "the condition does not hold",
		[HF_INVALID] = "invalid argument",
		[HF_DENIED] = "not permitted",
		[HF_BUSY] = "a bound was reached",
		[HF_UNAVAILABLE] = "no replica could be reached",
		[HF_FAILED] = "failed",
	};
	return WORD(texts, code);
}

const char *hf_reason_text(enum hf_reason reason)
{
	static const char *const texts[] = {
		[HF_REASON_NONE] = "none",
		[HF_REASON_NO_ANSWER] = "no answer from the cell in time",
		[HF_REASON_EXPIRED] = "the cell ended the session",
		[HF_REASON_REVOKED] = "its lease was revoked",
		[HF_REASON_TAKEN_OVER] = "somebody else resumed the session",
		[HF_REASON_REFUSED] = "the cell refused the session",
		[HF_REASON_CLOSED] = "the session was closed",
		[HF_REASON_RELEASED] = "given up",
		[HF_REASON_BROKEN] = "the hold was broken",
	};
	return WORD(texts, reason);
}

const char *hf_version(void)
{
	return HF_VERSION;
}
