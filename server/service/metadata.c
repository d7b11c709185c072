/* metadata.c: what a call says beside its messages, the same for gRPC's metadata and the gateway's headers. */
#include "metrics.h"
#include "service/service.h"

/* Decimal, no sign, no space. */
static bool parse_u64(struct slice s, uint64_t *ret)
{
	uint64_t v = 0;
	if (s.len == 0 || s.len > 20)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		unsigned digit = (unsigned)s.ptr[i] - '0';
		if (digit > 9 || v > (UINT64_MAX - digit) / 10)
			return false;
		v = v * 10 + digit;
	}
	*ret = v;
	return true;
}

/* Decimal, maybe with a minus: etcd's clients may choose negative leases. */
static bool parse_lease(struct slice s, lease_id *ret)
{
	bool minus = s.len > 0 && s.ptr[0] == '-';
	uint64_t v;
	if (!parse_u64(minus ? slice_of(s.ptr + 1, s.len - 1) : s, &v) || v > (uint64_t)INT64_MAX + minus)
		return false;
	*ret = (lease_id)(minus ? 0 - v : v);
	return true;
}

static bool is(struct slice a, const char *b)
{
	return slice_eq(a, slice_of_str(b));
}

enum err service_metadata(struct service_call *c, struct slice name, struct slice value)
{
	bool ok = true;
	if (is(name, "holdfast-session"))
		ok = parse_lease(value, &c->session);
	else if (is(name, "holdfast-request"))
		ok = parse_u64(value, &c->request_id);
	else if (is(name, "holdfast-first-unanswered"))
		ok = parse_u64(value, &c->first_unanswered);
	else if (is(name, "hasleader"))
		c->need_leader = is(value, "true");
	else if (is(name, "client-api-version"))
		c->client_version = metric_client(value);
	else if (is(name, "token") || is(name, "authorization"))
		c->token = value;
	return ok ? ERR_OK : ERR_BAD_METADATA;
}
