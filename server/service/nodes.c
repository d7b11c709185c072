/* nodes.c: holdfast.v1.Nodes: the checks that need no state. */
#include "checks.h"
#include "core/kv/kv.h"
#include "holdfast/v1.pb-c.h"

CHECK(check_node_create)
{
	(void)s, (void)ret_detail;
	return kv_check_node_create(REQUEST_AS(Holdfast__V1__NodesCreateRequest, request));
}

CHECK(check_node_get)
{
	(void)s, (void)ret_detail;
	return kv_check_node_get(REQUEST_AS(Holdfast__V1__NodesGetRequest, request));
}

CHECK(check_node_set)
{
	(void)s, (void)ret_detail;
	return kv_check_node_set(REQUEST_AS(Holdfast__V1__NodesSetRequest, request));
}

CHECK(check_node_delete)
{
	(void)s, (void)ret_detail;
	return kv_check_node_delete(REQUEST_AS(Holdfast__V1__NodesDeleteRequest, request));
}

CHECK(check_node_list)
{
	(void)s, (void)ret_detail;
	return kv_check_node_list(REQUEST_AS(Holdfast__V1__NodesListRequest, request));
}
