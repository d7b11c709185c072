/* methods_test.c: the method table agrees with the services of the .proto files, and every path finds its row. */
#include "methods.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "etcd/rpc.pb-c.h"
#include "etcd/v3election.pb-c.h"
#include "etcd/v3lock.pb-c.h"
#include "ext/health.pb-c.h"
#include "ext/reflection_v1.pb-c.h"
#include "ext/reflection_v1alpha.pb-c.h"
#include "holdfast/v1.pb-c.h"

static const ProtobufCServiceDescriptor *const services[] = {
	&etcdserverpb__kv__descriptor,          &etcdserverpb__watch__descriptor,
	&etcdserverpb__lease__descriptor,       &etcdserverpb__cluster__descriptor,
	&etcdserverpb__maintenance__descriptor, &etcdserverpb__auth__descriptor,
	&v3electionpb__election__descriptor,    &v3lockpb__lock__descriptor,       &holdfast__v1__locks__descriptor,
	&holdfast__v1__session__descriptor,
	&holdfast__v1__nodes__descriptor,
	&grpc__health__v1__health__descriptor,
	&grpc__reflection__v1__server_reflection__descriptor,
	&grpc__reflection__v1alpha__server_reflection__descriptor,
};

enum { SERVICES = sizeof services / sizeof *services };

static const struct method *row(size_t id)
{
	return method_by_id((enum method_id)id);
}

START_TEST(methods__there_are_62_in_14_services)
{
	unsigned in_protos = 0;

	ck_assert_int_eq(METHOD_COUNT, 62);
	ck_assert_int_eq(SERVICES, 14);
	for (size_t i = 0; i < SERVICES; i++)
		in_protos += services[i]->n_methods;
	ck_assert_uint_eq(in_protos, METHOD_COUNT);
}
END_TEST

START_TEST(methods__each_row_is_a_method_of_its_service)
{
	for (size_t id = 0; id < METHOD_COUNT; id++) {
		const struct method *m = row(id);
		const ProtobufCServiceDescriptor *service = NULL;
		const ProtobufCMethodDescriptor *proto = NULL;

		ck_assert_uint_eq(m->id, id);
		for (size_t i = 0; i < SERVICES; i++)
			if (strcmp(services[i]->name, m->service) == 0)
				service = services[i];
		ck_assert_msg(service != NULL, "no service %s", m->service);
		for (unsigned i = 0; i < service->n_methods; i++)
			if (strcmp(service->methods[i].name, m->name) == 0)
				proto = &service->methods[i];
		ck_assert_msg(proto != NULL, "no method %s.%s", m->service, m->name);
		ck_assert_msg(proto->input == m->request, "%s takes %s", m->path, proto->input->name);
		ck_assert_msg(proto->output == m->reply, "%s gives %s", m->path, proto->output->name);
	}
}
END_TEST

START_TEST(methods__each_path_is_service_and_name_and_finds_its_row)
{
	char path[128];

	for (size_t id = 0; id < METHOD_COUNT; id++) {
		const struct method *m = row(id);

		snprintf(path, sizeof path, "/%s/%s", m->service, m->name);
		ck_assert_str_eq(m->path, path);
		ck_assert_ptr_eq(method_by_path(slice_of_str(path)), m);
		ck_assert_ptr_null(method_by_json_path(slice_of_str(path)));
	}
}
END_TEST

START_TEST(methods__each_json_path_finds_its_row_in_v3_and_v3beta)
{
	char beta[128];
	int paths = 0;

	for (size_t id = 0; id < METHOD_COUNT; id++) {
		const struct method *m = row(id);

		for (int i = 0; m->json_paths[i]; i++) {
			const char *path = m->json_paths[i];

			paths++;
			ck_assert_msg(strncmp(path, "/v3/", 4) == 0, "%s", path);
			ck_assert_ptr_eq(method_by_json_path(slice_of_str(path)), m);
			ck_assert_ptr_null(method_by_path(slice_of_str(path)));
			snprintf(beta, sizeof beta, "/v3beta/%s", path + 4);
			ck_assert_ptr_eq(method_by_json_path(slice_of_str(beta)), m);
		}
	}
	ck_assert_int_eq(paths, 56 + 3); /* all but RangeStream have one; three of the leases' have two */
	ck_assert_ptr_null(row(METHOD_KV_RANGE_STREAM)->json_paths[0]);
}
END_TEST

START_TEST(methods__no_path_is_there_twice)
{
	for (size_t a = 0; a < METHOD_COUNT; a++) {
		for (size_t b = 0; b < METHOD_COUNT; b++) {
			if (a != b)
				ck_assert_str_ne(row(a)->path, row(b)->path);
			for (int i = 0; row(a)->json_paths[i]; i++)
				for (int j = 0; row(b)->json_paths[j]; j++)
					if (a != b || i != j)
						ck_assert_str_ne(row(a)->json_paths[i], row(b)->json_paths[j]);
		}
	}
}
END_TEST

static const char *const strangers[] = {
	"",
	"/",
	"etcdserverpb.KV/Range",
	"/etcdserverpb.KV/range",
	"/etcdserverpb.KV/Rang",
	"/etcdserverpb.KV/RangeS",
	"/etcdserverpb.KV/Range/",
	"/v3",
	"/v3/",
	"/v3beta/",
	"/v3beta",
	"/v3/kv",
	"/v3/kv/range/",
	"/v3/kv/range?",
	"/V3/kv/range",
	"/v3alpha/kv/range",
	"/v3beta/v3/kv/range",
	"/v3beta/kv/rangestream/with/a/path/that/goes/on/and/on/and/on/and/on/and/on/and/on/and/on/and/on/and/on/and/on/and/"
	"on/and/on/and/on",
};

START_TEST(methods__unknown_paths_find_nothing)
{
	ck_assert_ptr_null(method_by_path(slice_of_str(strangers[_i])));
	ck_assert_ptr_null(method_by_json_path(slice_of_str(strangers[_i])));
}
END_TEST

START_TEST(methods__an_empty_slice_without_bytes_finds_nothing)
{
	ck_assert_ptr_null(method_by_path((struct slice){ 0 }));
	ck_assert_ptr_null(method_by_json_path((struct slice){ 0 }));
}
END_TEST

START_TEST(methods__a_path_ends_where_its_slice_does)
{
	ck_assert_ptr_eq(method_by_path(slice_of("/etcdserverpb.KV/RangeStream", strlen("/etcdserverpb.KV/Range"))),
			 row(METHOD_KV_RANGE));
	ck_assert_ptr_eq(method_by_json_path(slice_of("/v3/kv/put?x=y", strlen("/v3/kv/put"))), row(METHOD_KV_PUT));
}
END_TEST

START_TEST(methods__streams_are_as_clients_expect)
{
	int count[METHOD_BIDI_STREAM + 1] = { 0 };

	for (size_t id = 0; id < METHOD_COUNT; id++)
		count[row(id)->stream]++;
	ck_assert_int_eq(count[METHOD_BIDI_STREAM], 5);
	ck_assert_int_eq(row(METHOD_WATCH_WATCH)->stream, METHOD_BIDI_STREAM);
	ck_assert_int_eq(row(METHOD_LEASE_KEEP_ALIVE)->stream, METHOD_BIDI_STREAM);
	ck_assert_int_eq(row(METHOD_SESSION_CONNECT)->stream, METHOD_BIDI_STREAM);
	ck_assert_int_eq(count[METHOD_SERVER_STREAM], 4);
	ck_assert_int_eq(row(METHOD_KV_RANGE_STREAM)->stream, METHOD_SERVER_STREAM);
	ck_assert_int_eq(row(METHOD_MAINTENANCE_SNAPSHOT)->stream, METHOD_SERVER_STREAM);
	ck_assert_int_eq(row(METHOD_ELECTION_OBSERVE)->stream, METHOD_SERVER_STREAM);
	ck_assert_int_eq(count[METHOD_UNARY], 53);
}
END_TEST

START_TEST(methods__only_authenticate_and_grpcs_own_are_for_everybody)
{
	for (size_t id = 0; id < METHOD_COUNT; id++)
		ck_assert_msg((row(id)->permission == PERMISSION_NONE) == (id == METHOD_AUTH_AUTHENTICATE || id >= METHOD_HEALTH_CHECK), "%s",
			      row(id)->path); /* health and reflection tell nothing of what is in the store */
}
END_TEST

START_TEST(methods__what_may_be_read_may_not_write)
{
	for (size_t id = 0; id < METHOD_COUNT; id++) {
		const struct method *m = row(id);

		if (m->permission == PERMISSION_KEY_READ)
			ck_assert_msg(m->access == METHOD_READ, "%s", m->path);
		if (m->permission == PERMISSION_KEY_WRITE || m->permission == PERMISSION_KEY_READ_WRITE)
			ck_assert_msg(m->access == METHOD_WRITE, "%s", m->path);
	}
}
END_TEST

START_TEST(protos__our_additions_are_where_clients_look)
{
	const ProtobufCFieldDescriptor *f;

	f = protobuf_c_message_descriptor_get_field(&v3lockpb__lock_request__descriptor, 100);
	ck_assert_str_eq(f->name, "mode");
	f = protobuf_c_message_descriptor_get_field(&v3lockpb__lock_request__descriptor, 101);
	ck_assert_str_eq(f->name, "wait_ms");
	ck_assert(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF);
	f = protobuf_c_message_descriptor_get_field(&v3lockpb__lock_response__descriptor, 100);
	ck_assert_str_eq(f->name, "fencing_token");
	f = protobuf_c_message_descriptor_get_field(&v3lockpb__unlock_request__descriptor, 100);
	ck_assert_str_eq(f->name, "fencing_token");
	f = protobuf_c_message_descriptor_get_field(&v3electionpb__campaign_request__descriptor, 101);
	ck_assert_str_eq(f->name, "wait_ms");
	f = protobuf_c_message_descriptor_get_field(&v3electionpb__campaign_response__descriptor, 100);
	ck_assert_str_eq(f->name, "fencing_token");
	f = protobuf_c_message_descriptor_get_field(&v3electionpb__leader_request__descriptor, 100);
	ck_assert_str_eq(f->name, "vacancy");
	f = protobuf_c_message_descriptor_get_field(&v3electionpb__leader_response__descriptor, 100);
	ck_assert_str_eq(f->name, "vacant");
}
END_TEST

START_TEST(protos__a_try_is_not_an_endless_wait)
{
	V3lockpb__LockRequest req = V3LOCKPB__LOCK_REQUEST__INIT, *back;
	uint8_t bytes[32];
	size_t len;

	len = v3lockpb__lock_request__pack(&req, bytes);
	ck_assert_uint_eq(len, 0);
	req.wait_case = V3LOCKPB__LOCK_REQUEST__WAIT_WAIT_MS;
	len = v3lockpb__lock_request__pack(&req, bytes);
	back = v3lockpb__lock_request__unpack(NULL, len, bytes);
	ck_assert_ptr_nonnull(back);
	ck_assert_int_eq(back->wait_case, V3LOCKPB__LOCK_REQUEST__WAIT_WAIT_MS);
	ck_assert_int_eq(back->wait_ms, 0);
	v3lockpb__lock_request__free_unpacked(back, NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("methods");
	TCase *tc = tcase_create("methods");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, methods__there_are_62_in_14_services);
	tcase_add_test(tc, methods__each_row_is_a_method_of_its_service);
	tcase_add_test(tc, methods__each_path_is_service_and_name_and_finds_its_row);
	tcase_add_test(tc, methods__each_json_path_finds_its_row_in_v3_and_v3beta);
	tcase_add_test(tc, methods__no_path_is_there_twice);
	tcase_add_loop_test(tc, methods__unknown_paths_find_nothing, 0, sizeof strangers / sizeof *strangers);
	tcase_add_test(tc, methods__an_empty_slice_without_bytes_finds_nothing);
	tcase_add_test(tc, methods__a_path_ends_where_its_slice_does);
	tcase_add_test(tc, methods__streams_are_as_clients_expect);
	tcase_add_test(tc, methods__only_authenticate_and_grpcs_own_are_for_everybody);
	tcase_add_test(tc, methods__what_may_be_read_may_not_write);
	tcase_add_test(tc, protos__our_additions_are_where_clients_look);
	tcase_add_test(tc, protos__a_try_is_not_an_endless_wait);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
