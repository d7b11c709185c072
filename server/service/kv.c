/* kv.c: etcdserverpb.KV. The checks are the core's own (kv.h), which makes them again when it applies. */
#include "core/kv/kv.h"

#include "checks.h"

CHECK(check_range)
{
	(void)s, (void)ret_detail;
	return kv_check_range(REQUEST_AS(Etcdserverpb__RangeRequest, request));
}

CHECK(check_range_stream)
{
	enum err e = kv_check_range_stream(REQUEST_AS(Etcdserverpb__RangeRequest, request));
	(void)s;
	if (e == ERR_UNIMPLEMENTED)
		*ret_detail = "holdfast: a range that is streamed is in key order and not filtered by revision: use Range";
	return e;
}

CHECK(check_put)
{
	(void)s, (void)ret_detail;
	return kv_check_put(REQUEST_AS(Etcdserverpb__PutRequest, request));
}

CHECK(check_delete_range)
{
	(void)s, (void)ret_detail;
	return kv_check_delete_range(REQUEST_AS(Etcdserverpb__DeleteRangeRequest, request));
}

CHECK(check_txn)
{
	(void)ret_detail;
	return kv_check_txn(REQUEST_AS(Etcdserverpb__TxnRequest, request), s->limits.max_txn_ops);
}
