/* checks.h: each method's checks that need no state, in the file of its service. */
#ifndef HOLDFAST_SERVICE_CHECKS_H
#define HOLDFAST_SERVICE_CHECKS_H

#include "internal.h"

#define CHECK(name) enum err name(const struct service *s, const ProtobufCMessage *request, const char **ret_detail)

CHECK(check_range);
CHECK(check_range_stream);
CHECK(check_put);
CHECK(check_delete_range);
CHECK(check_txn);
CHECK(check_lease_grant);
CHECK(check_lease_revoke);
CHECK(check_lock);
CHECK(check_unlock);
CHECK(check_locks_list);
CHECK(check_locks_verify);
CHECK(check_locks_break);
CHECK(check_campaign);
CHECK(check_proclaim);
CHECK(check_leader);
CHECK(check_resign);
CHECK(check_node_create);
CHECK(check_node_get);
CHECK(check_node_set);
CHECK(check_node_delete);
CHECK(check_node_list);
CHECK(check_alarm);
CHECK(check_downgrade);

/* What is worth a line in the log once it is done. */
void note_member_change(const struct service_call *c, struct slice request, struct slice reply);
void note_alarm(const struct service_call *c, struct slice request, struct slice reply);
void note_defragment(const struct service_call *c, struct slice request, struct slice reply);
void note_locks_break(const struct service_call *c, struct slice request, struct slice reply);

/* The request as its own type: unpacked by the method's descriptor, so it is that. */
#define REQUEST_AS(type, request) ((const type *)(const void *)(request))

#endif
