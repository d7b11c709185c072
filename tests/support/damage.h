/* damage.h: records as the log and snapshots may have them after damage that no checksum found. */
#ifndef HOLDFAST_TESTS_SUPPORT_DAMAGE_H
#define HOLDFAST_TESTS_SUPPORT_DAMAGE_H

#include <check.h>

#include "base/buf.h"
#include "core/tree/tree.h"

/* Cut anywhere, a record is refused; with any byte changed it is refused, or means something that is encoded just so. */
static inline void damage_is_refused_or_canonical(const struct tree_type *type, const struct tree_record *record)
{
	struct buf bytes = { 0 }, again = { 0 };
	struct tree_record *r;

	type->encode(record, &bytes);
	for (size_t len = 0; len < bytes.len; len++)
		ck_assert_int_eq(type->decode(slice_of(bytes.ptr, len), &r), ERR_CORRUPT);
	for (size_t at = 0; at < bytes.len; at++) {
		for (unsigned flip = 1; flip < 256; flip++) {
			bytes.ptr[at] ^= (uint8_t)flip;
			if (type->decode(buf_view(&bytes), &r) == ERR_OK) {
				buf_clear(&again);
				type->encode(r, &again);
				ck_assert(slice_eq(buf_view(&bytes), buf_view(&again)));
				type->free(r);
			}
			bytes.ptr[at] ^= (uint8_t)flip;
		}
	}
	buf_free(&bytes);
	buf_free(&again);
}

#endif
