/* access.c: CORS, and the host names that plain HTTP may use: a browser that is talked into another name for this address (DNS rebinding) is refused. */
#include <string.h>

#include "base/mem.h"
#include "internal.h"

static bool listed(const char *const *list, size_t len, struct slice what)
{
	for (size_t i = 0; i < len; i++) {
		if (slice_eq(slice_of_str(list[i]), what))
			return true;
	}
	return false;
}

/* "host", "host:port", "[v6]:port": the host. */
static struct slice host_of(struct slice authority)
{
	const uint8_t *end;
	if (authority.len && authority.ptr[0] == '[') {
		end = memchr(authority.ptr, ']', authority.len);
		return end ? slice_of(authority.ptr + 1, (size_t)(end - authority.ptr - 1)) : authority;
	}
	end = authority.len ? memchr(authority.ptr, ':', authority.len) : NULL;
	return end ? slice_of(authority.ptr, (size_t)(end - authority.ptr)) : authority;
}

bool access_host_allowed(const struct gateway *g, const h2o_req_t *req)
{
	return g->config.hosts_len == 0 || listed(g->config.hosts, g->config.hosts_len, host_of(slice_of(req->authority.base, req->authority.len)));
}

const char *access_origin(const struct gateway *g, h2o_req_t *req)
{
	ssize_t at;
	h2o_iovec_t v;
	if (g->config.origins_len == 0)
		return "*";
	at = h2o_find_header_by_str(&req->headers, "origin", 6, -1);
	if (at < 0)
		return NULL;
	v = req->headers.entries[at].value;
	if (!listed(g->config.origins, g->config.origins_len, slice_of(v.base, v.len)))
		return NULL;
	return h2o_strdup(&req->pool, v.base, v.len).base;
}
