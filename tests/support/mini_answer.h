/* mini_answer.h: what a story expects of a call: that it is answered in time, and how. */
#ifndef HOLDFAST_TESTS_SUPPORT_MINI_ANSWER_H
#define HOLDFAST_TESTS_SUPPORT_MINI_ANSWER_H

#include <check.h>

#include "support/mini_cell.h"

#define OK(m, tag) ck_assert_msg(answer_of(m, tag)->err == ERR_OK, "%s", err_name(answer_of(m, tag)->err))
#define FAILS(m, tag, e) ck_assert_str_eq(err_name(answer_of(m, tag)->err), err_name(e))

static inline const struct mini_answer *answer_of(struct mini_cell *m, uint64_t tag)
{
	const struct mini_answer *a = mini_wait(m, tag, 15000);

	ck_assert_msg(a != NULL, "no answer for call %llu", (unsigned long long)tag);
	return a;
}

#endif
