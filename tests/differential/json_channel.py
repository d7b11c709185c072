"""json_channel.py: the JSON gateway, in the shape of a gRPC channel.

Generated stubs take a JsonChannel for a channel, so that whatever is asked of a service can be asked by JSON with the same code, and its
answer compared with the same code. What a message does not show is judged here, of each body: that its fields have the proto's names and
order, integers of 64 bits are strings, enums names, bytes base64, and defaults left out (a body must be what render() makes of it); that
an error has its three fields in their order, and the HTTP status that belongs to its code. A body that does not is an outcome of its own,
with code UNKNOWN and a text that begins with "gateway: ", and so a difference.
"""
import base64
import json
import queue
import re
import socket
import threading
import time

import cells

cells.stubs()
import grpc  # noqa: E402
from google.protobuf import json_format  # noqa: E402
from etcd import rpc_pb2, v3election_pb2, v3lock_pb2  # noqa: E402

PATHS = {
    "KV": {"Range": "kv/range", "Put": "kv/put", "DeleteRange": "kv/deleterange", "Txn": "kv/txn", "Compact": "kv/compaction"},
    "Watch": {"Watch": "watch"},
    "Lease": {"LeaseGrant": "lease/grant", "LeaseRevoke": "lease/revoke", "LeaseKeepAlive": "lease/keepalive", "LeaseTimeToLive": "lease/timetolive",
              "LeaseLeases": "lease/leases"},
    "Cluster": {"MemberAdd": "cluster/member/add", "MemberRemove": "cluster/member/remove", "MemberUpdate": "cluster/member/update",
                "MemberList": "cluster/member/list", "MemberPromote": "cluster/member/promote"},
    "Maintenance": {"Alarm": "maintenance/alarm", "Status": "maintenance/status", "Defragment": "maintenance/defragment", "Hash": "maintenance/hash",
                    "HashKV": "maintenance/hashkv", "Snapshot": "maintenance/snapshot", "MoveLeader": "maintenance/transfer-leadership"},
    "Auth": {"AuthEnable": "auth/enable", "AuthDisable": "auth/disable", "Authenticate": "auth/authenticate", "UserAdd": "auth/user/add",
             "UserGet": "auth/user/get", "UserList": "auth/user/list", "UserDelete": "auth/user/delete", "UserChangePassword": "auth/user/changepw",
             "UserGrantRole": "auth/user/grant", "UserRevokeRole": "auth/user/revoke", "RoleAdd": "auth/role/add", "RoleGet": "auth/role/get",
             "RoleList": "auth/role/list", "RoleDelete": "auth/role/delete", "RoleGrantPermission": "auth/role/grant",
             "RoleRevokePermission": "auth/role/revoke"},
    "Election": {"Campaign": "election/campaign", "Proclaim": "election/proclaim", "Leader": "election/leader", "Observe": "election/observe",
                 "Resign": "election/resign"},
    "Lock": {"Lock": "lock/lock", "Unlock": "lock/unlock"},
}
DESCRIPTORS = (rpc_pb2.DESCRIPTOR, v3election_pb2.DESCRIPTOR, v3lock_pb2.DESCRIPTOR)
STATUS = {"CANCELLED": 408, "UNKNOWN": 500, "INVALID_ARGUMENT": 400, "DEADLINE_EXCEEDED": 504, "NOT_FOUND": 404, "ALREADY_EXISTS": 409,
          "PERMISSION_DENIED": 403, "UNAUTHENTICATED": 401, "RESOURCE_EXHAUSTED": 429, "FAILED_PRECONDITION": 412, "ABORTED": 409, "OUT_OF_RANGE": 400,
          "UNIMPLEMENTED": 501, "INTERNAL": 500, "UNAVAILABLE": 503, "DATA_LOSS": 500}
CODES = {c.value[0]: c for c in grpc.StatusCode}
OURS = re.compile(r',?"details":("[^"]*"|\[[^\]]*\])')  # beside etcd's fields of an error
IDLE_S = 0.5  # after which a connection is not used again: neither side may have closed it


# ---- messages ----

def _text(s):
    s = json.dumps(s, ensure_ascii=False)
    return s.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _value(f, v):
    if f.type == f.TYPE_MESSAGE:
        return render(v)
    if f.type == f.TYPE_BYTES:
        return '"' + base64.b64encode(v).decode() + '"'
    if f.type == f.TYPE_STRING:
        return _text(v)
    if f.type == f.TYPE_ENUM:
        known = f.enum_type.values_by_number.get(v)
        return f'"{known.name}"' if known else str(v)
    if f.type == f.TYPE_BOOL:
        return "true" if v else "false"
    return f'"{v}"' if f.cpp_type in (f.CPPTYPE_INT64, f.CPPTYPE_UINT64) else str(v)


def render(message):
    """The body that etcd's gateway makes of a message."""
    present = {f.number: v for f, v in message.ListFields()}
    parts = []
    for f in message.DESCRIPTOR.fields:
        if f.number not in present:
            continue
        v = present[f.number]
        text = "[" + ",".join(_value(f, x) for x in v) + "]" if f.label == f.LABEL_REPEATED else _value(f, v)
        parts.append(f'"{f.name}":{text}')
    return "{" + ",".join(parts) + "}"


def _request(message):
    return json.dumps(json_format.MessageToDict(message, preserving_proto_field_name=True)).encode()


class JsonError(grpc.RpcError):
    def __init__(self, code, details):
        super().__init__(details)
        self._code, self._details = code, details

    def code(self):
        return self._code

    def details(self):
        return self._details


def _wrong(text):
    return JsonError(grpc.StatusCode.UNKNOWN, f"gateway: {text}")


def _reply(kind, text):
    reply = kind()
    try:
        json_format.Parse(text, reply)
    except json_format.ParseError as e:
        raise _wrong(f"{e} in {text[:500]}") from e
    if render(reply) != text:
        raise _wrong(f"{text[:500]} should be {render(reply)[:500]}")
    return reply


def _error(status, body):
    text = OURS.sub("", body)
    try:
        e = json.loads(body)
        code = CODES[e["code"]]
    except (ValueError, KeyError, TypeError):
        return _wrong(f"{status} {body[:300]!r}")
    if text != '{"error":%s,"message":%s,"code":%d}' % (_text(e["message"]), _text(e["message"]), e["code"]):
        return _wrong(f"an error has a form of its own: {text[:500]}")
    if STATUS[code.name] != status:
        return _wrong(f"HTTP status {status} for {text[:500]}")
    return JsonError(code, e["message"])


def _stream_error(text):
    """Of a stream that has begun: {"error":{...}} with fields of its own."""
    try:
        e = json.loads(text)["error"]
        return JsonError(CODES[e["grpc_code"]], e["message"])
    except (ValueError, KeyError, TypeError):
        return _wrong(f"{text[:500]} in a stream")


# ---- HTTP ----

class _Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")
        self.idle_since = 0.0

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes whoever reads
        except OSError:
            pass
        self.socket.close()

    def send(self, path, headers, body):
        lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
        self.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def head(self):
        status = self.file.readline()
        if not status:
            raise ConnectionError("closed before an answer")
        headers = {}
        while (line := self.file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return int(status.split()[1]), headers

    def chunks(self):
        while n := int(self.file.readline() or b"0", 16):
            yield self.file.read(n)
            self.file.readline()
        self.file.readline()

    def body(self, headers):
        if headers.get("transfer-encoding") == "chunked":
            return b"".join(self.chunks())
        return self.file.read(int(headers.get("content-length", "0")))


class _Call:
    """One call, whether of one answer (a future) or of many (an iterator)."""

    def __init__(self, channel, path, kind, body, timeout, metadata, streams):
        self.channel, self.kind, self.streams = channel, kind, streams
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.connection, self.why, self.reply = None, None, None
        self.replies = queue.SimpleQueue()
        headers = [f"Authorization: {v}" for k, v in metadata or () if k == "token"]
        threading.Thread(target=self._run, args=(path, headers, body, timeout), daemon=True).start()

    def _end(self, why):
        with self.lock:
            if self.over.is_set():
                return
            self.why = why
            self.over.set()
            if self.connection and (why is not None or self.streams):
                self.connection.close()
        self.replies.put(None)

    def _run(self, path, headers, body, timeout):
        try:
            c = self.channel.connection()
            c.socket.settimeout(timeout)  # None for as long as it takes, as of a gRPC call
            with self.lock:
                self.connection = c
            if self.over.is_set():
                return c.close()
            c.send(path, headers, body)
            status, got = c.head()
            if status == 200 and self.streams:
                self._stream(c)
                return self._end(None)
            text = c.body(got).decode()
            if status != 200:
                error = _error(status, text)
                return self._end(error)
            self.reply = _reply(self.kind, text)
            self.channel.keep(c)
            self._end(None)
        except JsonError as e:
            self._end(e)
        except TimeoutError:
            self._end(JsonError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"))
        except (OSError, ValueError) as e:
            self._end(JsonError(grpc.StatusCode.UNAVAILABLE, f"gateway: {type(e).__name__} {e}"))

    def _stream(self, c):
        rest = b""
        for piece in c.chunks():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                text = line.decode()
                if text.startswith('{"result":') and text.endswith("}"):
                    self.replies.put(_reply(self.kind, text[len('{"result":'):-1]))
                else:
                    raise _stream_error(text)
        if rest:
            raise _wrong(f"a stream ends with {rest[:200]!r}")

    # ---- as of a gRPC call ----

    def done(self):
        return self.over.is_set()

    def cancel(self):
        self._end(grpc.FutureCancelledError())

    def result(self, timeout=None):
        self.over.wait(timeout)
        if self.why is not None:
            raise self.why
        return self.reply

    def __iter__(self):
        while (reply := self.replies.get()) is not None:
            yield reply
        if self.why is not None and not isinstance(self.why, grpc.FutureCancelledError):
            raise self.why


class _Method:
    def __init__(self, channel, path, takes_stream, gives_stream):
        package_service, method = path.strip("/").split("/")
        service = package_service.split(".")[1]
        found = next(d.services_by_name[service] for d in DESCRIPTORS if service in d.services_by_name)
        self.kind = found.methods_by_name[method].output_type._concrete_class
        self.path = PATHS[service].get(method)
        self.channel, self.takes_stream, self.gives_stream = channel, takes_stream, gives_stream

    def future(self, request, timeout=None, metadata=None):
        assert self.path, "the gateway has no such method"
        body = b"\n".join(map(_request, request)) if self.takes_stream else _request(request)
        return _Call(self.channel, "/v3/" + self.path, self.kind, body, timeout, metadata, self.gives_stream)

    def __call__(self, request, timeout=None, metadata=None):
        call = self.future(request, timeout, metadata)
        return call if self.gives_stream else call.result()


class JsonChannel:
    def __init__(self, endpoint):
        self.port = int(endpoint.rpartition(":")[2])
        self.lock = threading.Lock()
        self.idle = []

    def connection(self):
        with self.lock:
            while self.idle:
                c = self.idle.pop()
                if time.monotonic() - c.idle_since < IDLE_S:
                    return c
                c.close()
        return _Connection(self.port)

    def keep(self, c):
        c.idle_since = time.monotonic()
        with self.lock:
            self.idle.append(c)

    def close(self):
        with self.lock:
            for c in self.idle:
                c.close()
            self.idle.clear()

    def unary_unary(self, path, **_):
        return _Method(self, path, False, False)

    def unary_stream(self, path, **_):
        return _Method(self, path, False, True)

    def stream_stream(self, path, **_):
        return _Method(self, path, True, True)
