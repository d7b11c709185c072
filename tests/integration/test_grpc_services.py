"""gRPC's own services: health, and reflection, by which a client that has no protos finds all there is to know."""
import queue

import cells
import kit
from runner import test

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from ext import health_pb2, health_pb2_grpc, reflection_v1_pb2, reflection_v1_pb2_grpc, reflection_v1alpha_pb2, reflection_v1alpha_pb2_grpc


@test(own=True)
def health_by_grpc(server):
    with cells.Cell(server, 3) as cell:
        leader = cell.leader()
        with grpc.insecure_channel(leader.endpoint, kit.OPTIONS) as ch:
            stub = health_pb2_grpc.HealthStub(ch)
            for name in ("", "etcdserverpb.KV", "holdfast.v1.Locks", "grpc.health.v1.Health"):
                assert stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5).status == health_pb2.HealthCheckResponse.SERVING, name
            try:
                stub.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=5)
                raise AssertionError("an unknown service is healthy")
            except grpc.RpcError as e:
                assert e.code() == grpc.StatusCode.NOT_FOUND, e
            assert next(stub.Watch(health_pb2.HealthCheckRequest(service="nobody"))).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            told = queue.Queue()

            def watch():
                try:
                    for r in stub.Watch(health_pb2.HealthCheckRequest()):
                        told.put(r.status)
                except (grpc.RpcError, ValueError):
                    pass
            kit.threading.Thread(target=watch, daemon=True).start()
            assert told.get(timeout=5) == health_pb2.HealthCheckResponse.SERVING
            others = [r for r in cell.replicas if r is not leader]
            for r in others:
                r.kill()
            assert told.get(timeout=20) == health_pb2.HealthCheckResponse.NOT_SERVING
            others[0].start()
            assert told.get(timeout=20) == health_pb2.HealthCheckResponse.SERVING


class Reflection:
    def __init__(self, channel, module, stubs):
        self.requests, self.module = queue.Queue(), module
        self.replies = stubs.ServerReflectionStub(channel).ServerReflectionInfo(iter(self.requests.get, None))

    def ask(self, **what):
        self.requests.put(self.module.ServerReflectionRequest(host="h", **what))
        reply = next(self.replies)
        assert reply.valid_host == "h"
        return reply


@test(own=True)
def reflection_is_enough_for_a_client_without_protos(server):
    with cells.Cell(server, 1) as cell, grpc.insecure_channel(cell.replicas[0].endpoint, kit.OPTIONS) as ch:
        for module, stubs in ((reflection_v1_pb2, reflection_v1_pb2_grpc), (reflection_v1alpha_pb2, reflection_v1alpha_pb2_grpc)):
            r = Reflection(ch, module, stubs)
            names = [s.name for s in r.ask(list_services="").list_services_response.service]
            assert len(names) == len(set(names)) and {"etcdserverpb.KV", "v3lockpb.Lock", "holdfast.v1.Locks", "grpc.health.v1.Health",
                                                      "grpc.reflection.v1.ServerReflection"} <= set(names), names
            pool, seen = descriptor_pool.DescriptorPool(), set()

            def add(reply):
                for data in reply.file_descriptor_response.file_descriptor_proto:
                    f = descriptor_pb2.FileDescriptorProto.FromString(data)
                    if f.name in seen:
                        continue
                    seen.add(f.name)
                    for needed in f.dependency:
                        add(r.ask(file_by_filename=needed))
                    pool.Add(f)
            for name in names:
                reply = r.ask(file_containing_symbol=name)
                assert reply.file_descriptor_response.file_descriptor_proto, name
                add(reply)
            method = pool.FindServiceByName("etcdserverpb.KV").FindMethodByName("Put")
            make = message_factory.MessageFactory(pool).GetPrototype
            request, answer = make(method.input_type)(key=b"a", value=b"b"), make(method.output_type)
            reply = ch.unary_unary("/etcdserverpb.KV/Put", request_serializer=lambda m: m.SerializeToString(), response_deserializer=answer.FromString)(request)
            assert reply.header.revision > 1
            for found in ("etcdserverpb.KV.Put", "etcdserverpb.RangeRequest", "etcdserverpb.RangeRequest.SortOrder"):
                assert r.ask(file_containing_symbol=found).HasField("file_descriptor_response"), found
            for lost in ({"file_containing_symbol": "etcdserverpb.KV.Nope"}, {"file_containing_symbol": "etcdserverpb"}, {"file_by_filename": "x.proto"},
                         {"file_containing_symbol": "KV"}, {"all_extension_numbers_of_type": "etcdserverpb.KV"}):
                assert r.ask(**lost).error_response.error_code == 5, lost
            r.requests.put(None)
