/* status.c: what a status says beside its code. */
#include "base/pbw.h"
#include "details.h"
#include "internal.h"

/* google.rpc.Status: 1 code, 2 message, 3 details (google.protobuf.Any: 1 type_url, 2 value). */
void status_details(enum err e, const char *text, struct slice detail, struct buf *ret)
{
	struct buf url = { .ptr = NULL };
	size_t any;
	buf_printf(&url, "type.googleapis.com/%s", details_descriptor(e)->name);
	pbw_u64(ret, 1, (uint64_t)err_status(e));
	pbw_bytes(ret, 2, slice_of_str(text));
	any = pbw_open(ret, 3);
	pbw_bytes(ret, 1, buf_view(&url));
	pbw_bytes(ret, 2, detail);
	pbw_close(ret, any);
	buf_free(&url);
}

static bool is_service(struct slice name)
{
	for (int id = 0; id < METHOD_COUNT; id++) {
		if (slice_eq(name, slice_of_str(method_by_id((enum method_id)id)->service)))
			return true;
	}
	return false;
}

/* In the words of other gRPC servers, which people and some tools know. */
void status_unknown_path(struct slice path, struct buf *ret)
{
	size_t slash = path.len;
	struct slice service, name;
	while (slash > 0 && path.ptr[slash - 1] != '/')
		slash--;
	if (slash < 2) {
		buf_printf(ret, "malformed method name");
		return;
	}
	service = slice_of(path.ptr + 1, slash - 2);
	name = slice_of(path.ptr + slash, path.len - slash);
	if (is_service(service))
		buf_printf(ret, "unknown method %.*s for service %.*s", (int)name.len, (const char *)name.ptr, (int)service.len,
			   (const char *)service.ptr);
	else
		buf_printf(ret, "unknown service %.*s", (int)service.len, (const char *)service.ptr);
}
