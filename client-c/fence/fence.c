/* fence.c: who may still write.
 *
 *   (F1) any >= exclusive, and neither ever falls.
 *   (F2) an exclusive token is let in only when no higher token was; a shared one only when no higher exclusive one was. Shared holders have tokens of their
 *        own and hold together, so among themselves a lower one is no sign of age. */
#include "holdfast_fence.h"

#include "fence.h"

bool fence_args_ok(const void *name, size_t name_len)
{
	return name && name_len > 0 && name_len <= HF_FENCE_NAME_MAX;
}

bool fence_marks_ok(const struct hf_fence_marks *m)
{
	return m->exclusive >= 0 && m->any >= m->exclusive;
}

enum hf_fence_code hf_fence_admit(struct hf_fence_marks *marks, enum hf_fence_mode mode, int64_t token)
{
	int64_t mark;
	if (!marks || token < 1 || (mode != HF_FENCE_EXCLUSIVE && mode != HF_FENCE_SHARED))
		return HF_FENCE_INVALID;
	mark = mode == HF_FENCE_EXCLUSIVE ? marks->any : marks->exclusive; /* F2 */
	if (token < mark)
		return HF_FENCE_STALE;
	if (mode == HF_FENCE_EXCLUSIVE)
		marks->exclusive = token;
	if (token > marks->any)
		marks->any = token;
	return HF_FENCE_OK;
}

const char *hf_fence_text(enum hf_fence_code code)
{
	static const char *const texts[] = {
		[HF_FENCE_OK] = "let in",
		[HF_FENCE_STALE] = "stale fencing token: a later holder was here",
		[HF_FENCE_INVALID] = "no such token, mode or name",
		[HF_FENCE_NO_TRANSACTION] = "not in a transaction",
		[HF_FENCE_BUSY] = "another writer is in the way",
		[HF_FENCE_CORRUPT] = "what is stored is not a mark",
		[HF_FENCE_FAILED] = "the database failed",
	};
	return (unsigned)code < sizeof(texts) / sizeof(texts[0]) ? texts[code] : "no such code";
}
