#!/usr/bin/env python3
"""gateway_bodies.py: the same JSON bodies to stock etcd's gateway and to Holdfast's; status, body and headers must be the same.

A part of run.py, and for itself: gateway_bodies.py [path of holdfastd]. Both cells start empty and get the same requests in the same order, so
revisions agree; only what is random (IDs of cells, members and leases) and the term is replaced before the comparison. Where we mean to differ,
the case says what we answer and why.
"""
import base64
import json
import pathlib
import re
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from cells import Cell, TOP  # noqa: E402

HEADERS = ["access-control-allow-origin", "access-control-allow-headers", "access-control-allow-methods", "content-type",
           "grpc-metadata-content-type", "allow", "x-content-type-options"]
# Ours beside etcd's.
ADDED = re.compile(r',?"(fencing_token|ttl|details)":("[^"]*"|\[[^\]]*\])')


def b64(text):
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


class Case:
    def __init__(self, path, body=b"", verb="POST", stream=False, ours=None, why=None, headers=(), loose=False):
        if not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        self.path, self.verb, self.stream, self.headers = path, verb, stream, headers
        self.body = body.encode() if isinstance(body, str) else body
        self.ours = ours    # (status, part of the body) where we mean to differ
        self.why = why
        self.loose = loose  # only the status is compared
        assert (ours is None) == (why is None)

    def __str__(self):
        return f"{self.verb} {self.path} {self.body[:200]!r}"


def send(port, case, quiet=0.4):
    """(status, headers, body). A stream is read until nothing came for a while, then left."""
    with socket.create_connection(("127.0.0.1", port), timeout=8) as s:
        lines = [f"{case.verb} {case.path} HTTP/1.1", "Host: x", f"Content-Length: {len(case.body)}", *case.headers]
        if not case.stream:
            lines.append("Connection: close")
        s.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + case.body)
        data = b""
        if case.stream:
            s.settimeout(quiet)
        try:
            while piece := s.recv(65536):
                data += piece
                if case.stream and data.endswith(b"\r\n0\r\n\r\n"):
                    break
        except TimeoutError:
            if not case.stream:
                raise
        except ConnectionError:
            pass
    return parse(data)


def parse(data):
    head, _, body = data.partition(b"\r\n\r\n")
    if not head:
        return None, {}, b""
    lines = head.decode().split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
    if headers.get("transfer-encoding") == "chunked":
        body = dechunk(body)
    return int(lines[0].split()[1]), headers, body


def dechunk(data):
    out = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        n = int(size, 16)
        if n == 0:
            break
        out += rest[:n]
        data = rest[n + 2:]
    return out


def normal(body, case):
    text = body.decode(errors="replace")
    text = re.sub(r'"(cluster_id|member_id|raft_term|raftTerm|raftIndex|raftAppliedIndex|dbSize|dbSizeInUse|leader|since_unix_ms)":"\d+"', r'"\1":"*"', text)
    text = re.sub(r'"version":"3\.\d+\.\d+"', '"version":"*"', text)
    text = re.sub(r'"hash":\d+', '"hash":*', text)
    text = re.sub(r'http://127\.0\.0\.1:\d+', 'http://*', text)
    text = ADDED.sub("", text)
    # IDs that a server chose
    return re.sub(r"\b\d{15,20}\b", lambda m: m[0] if m[0].encode() in case.body else "#", text)


K, V = b64("foo"), b64("bar")

SYNTAX = ["", " ", "{}", "null", "[]", '"x"', "1", "-", "{", "{}x", "{} {}", "true", "nul", "tru", "fals", "nulL", "{,}", "{]", "[}", "[1,]", "[1 2]",
          '{"key"}', '{"key":}', '{"key":"Zm9v"', '{"key":"Zm9v",}', '{"key" "Zm9v"}', '{"key":Zm9v}', "{'key':'Zm9v'}", '{"key":"Zm9v"}garbage',
          '{"key":"Zm9v" /*c*/}', '{"key":"\\u005am9v"}', '{"\\u006bey":"Zm9v"}', '{"key":"Zm9v","limit":01}', '{"key":"Zm9v","limit":+1}',
          '{"key":"Zm9v","limit":.5}', '{"key":"Zm9v","limit":1.}', '{"key":"Zm9v","limit":1e}', '{"key":"Zm9v","limit":1e+}', '{"key":"Zm9v","limit":-}',
          '{"key":"Zm9v","limit":--1}', '{"key":"Zm9v","limit":NaN}', '{"key":"Zm9v","limit":Infinity}', '{"key":"\\x"}', '{"key":"\\u12"}', '{"key":"\\u12zz"}',
          '{"key":"a\x01b"}', '{"key":"a\nb"}', '{"key":"Zm9v', '{"key":"Zm9v\\', '{"a":' * 50 + "1" + "}" * 50, "[" * 200, '{"a":' + "[" * 200 + "]" * 200 + "}",
          '{"a":[1,2,{"b":[]}],"key":"Zm9v"}', '\ufeff{"key":"Zm9v"}', '{"key":"Zm9v"}\x00', b"\xff", b'{"\xff":1,"key":"Zm9v"}', b'{"key":"Zm9v"}\xff', "\x7f", "é",
          "{\"key\":tru}", '{"key":truf}', '{"key":nil}', '{"a":"b" "c":1}', '["a":1]', '{"a":1]', '{1:2}', '{"":1,"key":"Zm9v"}', "\t\r\n{\"key\":\"Zm9v\"}\r\n",
          '[]{"key":"Zm9v"}', '0', '1.5e3', '00', '"', '"\\', "{\"key\":\"Zm9v\"}{", "\\"]

INTS = ['1', '"1"', '0', '-0', '"-0"', '1.0', '1e0', '"1.0"', '"1e2"', '1.5', '"x"', '""', '" 1"', '"1 "', '"+1"', '"0x1"', '"01"', '"1_0"', '"null"', '"true"',
        '"[1]"', '"{}"', '"\\u0031"', "true", "false", "[1]", "[]", "{}", "null", '"9223372036854775807"', "9223372036854775807", "9223372036854775808",
        '"-9223372036854775808"', "-9223372036854775809", "18446744073709551615", "1" * 400, "-1", '"-1"', "1E400", '"1"  ']
BYTES = ['"Zm8="', '""', "null", "1", "1.5", "true", "{}", '"@@@@"', '"Zm9v@"', '"Zm9\\n2"', '"Zm9\\r\\n2"', '"Z m9v"', '"Zm9v="', '"Zm9vZ==="', '"Z==="',
         '"/+8="', '"Zm9"', '[1]', "[]", "[1,2,3]", "[null]", "[256]", "[-1]", '["a"]', "[1.5]", "[true]", "[[1]]", "[{}]", '"\\/+8="', '"Zm9\\u003d"', '"Zm8\\u003d"',
         '"=Zm9"', '"Zm=8"', '"Zm8=Zm8="', '"Zg=="', '"Zg="', '"Zg=a"', '"Zh=="', '"=="', '"="']
BOOLS = ["true", "false", "null", '"true"', "1", "0", '""', "[]", "{}"]
ENUMS = ['"ASCEND"', '"NONE"', "1", "0", "null", '"1"', '"ascend"', '"BAD"', "1.0", "true", "[]", "{}", '""', "2147483648", "-2147483649", '"ASCEND "',
         '"\\u0041SCEND"', '"a\\"b"']
LISTS = ["[]", "null", "{}", '"x"', "1", "[1]", '["x"]', "[[]]", "[{}]", "true"]
MESSAGES = ["{}", "null", "[]", '"x"', "1", "true", '{"key":1}']


def field_cases(path, rest, field, values):
    for v in values:
        body = "{" + (rest + "," if rest else "") + f'"{field}":{v}' + "}"
        yield path, body


def matrix():
    key = f'"key":"{K}"'
    for path, rest, field, values in [
            ("/v3/kv/range", key, "limit", INTS), ("/v3/kv/range", key, "min_mod_revision", INTS), ("/v3/kv/range", "", "key", BYTES),
            ("/v3/kv/range", key, "range_end", BYTES), ("/v3/kv/range", key, "serializable", BOOLS), ("/v3/kv/range", key, "sort_order", ENUMS),
            ("/v3/kv/deleterange", '"key":"bm9uZQ=="', "prevKv", BOOLS), ("/v3/kv/txn", "", "success", LISTS), ("/v3/kv/txn", "", "compare", LISTS),
            ("/v3/lease/timetolive", "", "ID", INTS), ("/v3/lease/revoke", "", "ID", INTS), ("/v3/election/leader", "", "name", BYTES),
            ("/v3/cluster/member/remove", "", "ID", INTS), ("/v3/maintenance/transfer-leadership", "", "targetID", INTS),
            ("/v3/auth/user/get", "", "name", ['"nobody"', "1", "true", "[]", "{}", "null", '""']),
            ("/v3/election/proclaim", "", "leader", MESSAGES)]:
        yield from field_cases(path, rest, field, values)


STRICT_UTF8 = "text that is not UTF-8 is refused, not changed"
LENIENT_BASE64 = "both alphabets, padded or not, as later releases of etcd read them"
ONE_OF = "two members of a oneof are refused: etcd takes either by chance"
NULL_ELEMENT = "null in a list of messages is refused: etcd closes the connection"
TYPED = "a code that says what is wrong, where etcd's recipes have Unknown"
NAMELESS = "an election has a name"
CUT = "an error quotes a bounded part of what it is about"
LONG = "1" * 400


def matrix_case(path, body):
    if LONG in body:
        return Case(path, body, ours=(400, "json: cannot unmarshal number 111"), why=CUT)
    if '"Zm9"}' in body:
        return Case(path, body, ours=(None, ""), why=LENIENT_BASE64)
    if path.startswith("/v3/election/leader") and body in ('{"name":""}', '{"name":null}', '{"name":[]}'):
        return Case(path, body, ours=(400, "key is not provided"), why=NAMELESS)
    if path.startswith("/v3/election/proclaim") and body == '{"leader":{}}':
        return Case(path, body, ours=(400, "key is not provided"), why=TYPED)
    return Case(path, body)


def cases():
    yield Case("/v3/kv/put", {"key": K, "value": V})
    yield Case("/v3/kv/put", {"key": K, "value": V, "prev_kv": True})
    for body in SYNTAX:
        yield Case("/v3/kv/range", body)
    for path, body in matrix():
        yield matrix_case(path, body)
    # spelling
    for body in ['{"Key":"Zm9v"}', '{"rangeEnd":"Z28=","key":"Zm9v"}', '{"range_end":"Z28=","key":"Zm9v"}', '{"RANGE_END":"Z28=","key":"Zm9v"}',
                 '{"key":"Zm9v","key":"YQ=="}', '{"key":"YQ==","key":"Zm9v"}', '{"key":"Zm9v","key":null}', '{"key":"Zm9v","range_end":"Z28=","rangeEnd":"YQ=="}',
                 '{"key":"Zm9v","rangeEnd":"YQ==","range_end":"Z28="}', '{"key":"Zm9v","min_mod_revision":1,"sortTarget":"MOD"}', '{"key":"Zm9v","sort_target":2,"sortOrder":"DESCEND"}',
                 '{"key":"Zm9v","limit":"x","limit":1}', '{"key":"Zm9v","count_only":true}', '{"key":"Zm9v","keysOnly":true}', '{"key":"Zm9v","revision":"99"}',
                 '{"key":"AA==","range_end":"AA=="}', '{"key":"Zm9v","revision":2}']:
        yield Case("/v3/kv/range", body)
    for body in ['{"key":"_-8="}', '{"key":"Zm8"}', '{"key":"_-8"}']:
        yield Case("/v3/kv/range", body, ours=(200, '"header"'), why=LENIENT_BASE64)
    # writes and transactions
    yield Case("/v3beta/kv/put", {"key": b64("a"), "value": V})
    yield Case("/v3/kv/put", {"key": b64("b")})
    yield Case("/v3/kv/put", {"value": V})
    yield Case("/v3/kv/put", {"key": b64("c"), "ignore_value": True})
    yield Case("/v3/kv/put", {"key": b64("a"), "value": V, "ignore_value": True})
    yield Case("/v3/kv/put", {"key": b64("a"), "lease": "12345"})
    yield Case("/v3/kv/put", {"key": b64("x" * 1000), "value": b64("v" * 100000)})
    yield Case("/v3/kv/put", {"key": b64("big"), "value": b64("v" * 1600000)})
    yield Case("/v3/kv/range", {"key": b64("a"), "range_end": b64("d")})
    yield Case("/v3/kv/deleterange", {"key": b64("b"), "prevKv": True})
    yield Case("/v3/kv/deleterange", {})
    yield Case("/v3/kv/deleterange", {"key": b64("b")})
    for body in [
            {"compare": [{"key": K, "target": "VERSION", "result": "GREATER", "version": "0"}],
             "success": [{"request_put": {"key": K, "value": "YQ=="}}, {"requestRange": {"key": b64("a")}}], "failure": [{"requestTxn": {}}]},
            {"success": [{"request_put": {"key": K}}, {"request_put": {"key": K}}]}, {"success": [{}]}, {"success": [{"request_put": None}]},
            {"compare": [{"key": K, "version": None}]}, {"compare": [{"key": K, "target": "VALUE", "value": ""}]}, {"compare": [{}]},
            {"compare": [{"key": K, "target": "CREATE", "createRevision": 2}]}, {"compare": [{"key": K, "target": "MOD", "mod_revision": "2", "result": "LESS"}]},
            {"compare": [{"key": K, "target": "LEASE", "lease": 0}]}, {"compare": [{"key": K, "target": 9}]}, {"compare": [{"key": K, "result": "BAD"}]},
            {"compare": [{"key": K, "result": 3}]}, {"success": [{"request_delete_range": {"key": b64("nope")}}]},
            {"success": [{"request_txn": {"success": [{"request_put": {"key": b64("n")}}]}}, {"request_delete_range": {"key": b64("c"), "range_end": b64("e")}}]},
            {"success": [{"request_range": {"key": b64(f"k{i}")}} for i in range(128)]}, {"success": [{"request_range": {"key": K}}] * 129}, {}]:
        yield Case("/v3/kv/txn", body)
    both = {"success": [{"request_delete_range": {"key": b64("none")}, "request_range": {"key": K}}]}
    yield Case("/v3/kv/txn", both, ours=(400, "only one of"), why=ONE_OF)
    yield Case("/v3/kv/txn", '{"success":[null]}', ours=(400, "null in the list"), why=NULL_ELEMENT)
    # leases
    yield Case("/v3/lease/grant", {"TTL": 600, "ID": 7})
    yield Case("/v3/lease/grant", {"TTL": 600, "ID": 7})
    yield Case("/v3/lease/grant", {"TTL": "600", "ID": "-5"})
    yield Case("/v3/lease/grant", {"TTL": "9000000001"})
    yield Case("/v3/lease/grant", {"TTL": -1, "ID": 9})
    yield Case("/v3/lease/grant", {"ttl": 60, "id": 11}, loose=True)
    yield Case("/v3/kv/lease/timetolive", {"ID": 7})
    yield Case("/v3/lease/timetolive", {"ID": 7, "keys": True})
    yield Case("/v3/lease/timetolive", {"ID": 77})
    yield Case("/v3/kv/put", {"key": b64("leased"), "lease": 7})
    yield Case("/v3/kv/lease/timetolive", {"ID": 7, "keys": True})
    yield Case("/v3/kv/range", {"key": b64("leased")})
    yield Case("/v3/kv/lease/leases", "", loose=True)
    for body in ['{"ID":7}', '{"ID":7}{"ID":77}', '{"ID":"-5"} {"ID":"x"}', '[{"ID":7}]', '{"ID":"x"}', "", " ", "null", "{}", '{"ID":7}{"ID":x}', "x", '{"ID":7']:
        yield Case("/v3/lease/keepalive", body, stream=True)
    yield Case("/v3/kv/lease/revoke", {"ID": 7})
    yield Case("/v3/lease/revoke", {"ID": 7})
    # watches
    for body in ['{"create_request":{"key":"Zm9v"}}', '{"createRequest":{"key":"Zm9v","start_revision":2}}',
                 '{"create_request":{"key":"Zm9v"}} {"create_request":{"key":"Zm9w"}}\n{"cancel_request":{"watch_id":1}}', '{"create_request":{"key":"Zm9v"}} x',
                 "x", "[]", '{"create_request":{"key":1}}', '{"create_request":{"key":"Zm9v"}}{"create_request":{"key":1}}',
                 '{"create_request":{"key":"Zm9v","watch_id":"5"}}{"create_request":{"key":"Zm9v","watch_id":"5"}}',
                 '{"create_request":{"key":"Zm9v","filters":["NOPUT",1],"prev_kv":true}}', '{"create_request":{"key":"Zm9v","filters":["BAD"]}}',
                 '{"create_request":{"key":"Zm9v","filters":"NOPUT"}}', '{"create_request":{"key":"Zm9v","start_revision":3,"prev_kv":true,"filters":["NODELETE"]}}']:
        yield Case("/v3/watch", body, stream=True)
    # elections and locks
    yield Case("/v3/election/leader", {"name": b64("el")})
    yield Case("/v3/election/leader", {}, ours=(400, "key is not provided"), why=NAMELESS)
    yield Case("/v3/election/observe", "x", stream=True)
    yield Case("/v3/lease/grant", {"TTL": 600, "ID": 100})
    yield Case("/v3/election/campaign", {"name": b64("el"), "lease": "100", "value": V})
    yield Case("/v3/election/leader", {"name": b64("el")})
    yield Case("/v3/election/observe", {"name": b64("el")}, stream=True)
    yield Case("/v3/election/campaign", {"name": b64("el"), "lease": "999", "value": V}, ours=(404, "requested lease not found"), why=TYPED)
    yield Case("/v3/election/proclaim", {"leader": {"name": b64("el"), "key": b64("el/64"), "rev": "1", "lease": "100"}, "value": V})
    yield Case("/v3/lock/lock", {"name": b64("lk"), "lease": 100}, loose=True)
    yield Case("/v3/lock/lock", {"name": b64("lk"), "lease": 999}, ours=(404, "requested lease not found"), why=TYPED)
    yield Case("/v3/lock/unlock", {"key": b64("lk/64")}, loose=True)
    # strings
    yield Case("/v3/auth/user/get", b'{"name":"\xff\xfe"}', ours=(400, "not valid UTF-8"), why=STRICT_UTF8)
    yield Case("/v3/auth/user/get", '{"name":"\\ud800"}', ours=(400, "not valid UTF-8"), why=STRICT_UTF8)
    yield Case("/v3/auth/user/get", '{"name":"\\ud83d\\ude00"}')
    # the cell
    yield Case("/v3/cluster/member/list", "")
    yield Case("/v3/cluster/member/list", {"linearizable": True}, loose=True)
    yield Case("/v3/maintenance/status", "{}", loose=True)
    yield Case("/v3/maintenance/alarm", {"action": "GET"})
    yield Case("/v3/maintenance/alarm", {"action": "BAD"})
    yield Case("/v3/kv/compaction", {"revision": 3})
    yield Case("/v3/kv/compaction", {"revision": 3})
    yield Case("/v3/kv/compaction", {"revision": 999})
    yield Case("/v3/kv/range", {"key": K, "revision": 2})
    # paths and verbs
    for path in ["/v3/kv/putx", "/v3/kv/put/", "/v3/", "/v3/kv", "/v3beta/kv/nope"]:
        yield Case(path, "{}")
    yield Case("/nope", "{}", ours=(404, "Not Found"), why="one text for every unknown path")
    yield Case("/", "", "GET", ours=(404, "Not Found"), why="one text for every unknown path")
    for verb in ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"]:
        yield Case("/v3/kv/put", "", verb)
        yield Case("/v3/kv/nope", "", verb)
    yield Case("/v3/kv/range?x=y", {"key": K})
    yield Case("/health", "", "GET")
    yield Case("/health", "", "POST")
    yield Case("/health", "", "OPTIONS")
    yield Case("/version", "", "GET", loose=True)
    yield Case("/version", "", "PUT")
    yield Case("/metrics", "", "GET", loose=True)
    yield Case("/metrics", "", "HEAD", loose=True)
    # metadata
    yield Case("/v3/kv/range", {"key": K}, headers=["Grpc-Timeout: 5S"])
    yield Case("/v3/kv/range", {"key": K}, headers=["Grpc-Metadata-hasleader: true"])
    yield Case("/v3/kv/range", {"key": K}, headers=["Grpc-Metadata-Nobody-Knows: true"])


class Run:
    def __init__(self, stock, own):
        self.stock, self.own = stock, own
        self.same = self.meant = 0
        self.pending, self.bad = [], []

    def compare(self, case):
        theirs = send(self.stock.replicas[0].client_port, case)
        mine = send(self.own.replicas[0].client_port, case)
        if mine[0] == 501:
            self.pending.append(case)
            return
        text = [normal(reply[2], case) for reply in (theirs, mine)]
        if case.ours:
            status, part = case.ours
            ok = (status is None or mine[0] == status) and part in text[1]
            self.meant += ok
        else:
            ok = mine[0] == theirs[0] and (case.loose or self.alike(theirs, mine, text))
            self.same += ok
        if not ok:
            self.bad.append(case)
            print(f"FAIL {case}: differs\n  etcd:     {theirs[0]} {text[0][:600]!r}\n  holdfast: {mine[0]} {text[1][:600]!r}")
            for h in HEADERS:
                if theirs[1].get(h) != mine[1].get(h):
                    print(f"  {h}: {theirs[1].get(h)!r} / {mine[1].get(h)!r}")

    @staticmethod
    def alike(theirs, mine, text):
        return text[0] == text[1] and all(theirs[1].get(h) == mine[1].get(h) for h in HEADERS)


def compare_all(server):
    """How many paths agree, and how many cases do not."""
    begin = time.monotonic()
    paths = set()
    with Cell("/usr/bin/etcd") as stock, Cell(server) as own:
        run_of_cases = Run(stock, own)
        for case in cases():
            paths.add(case.path)
            run_of_cases.compare(case)
    r = run_of_cases
    pending = {c.path for c in r.pending}
    print(f"TOTAL gateway bodies: {r.same} the same, {r.meant} different as meant, {len(r.bad)} different, "
          f"{len(r.pending)} not implemented {sorted(pending)}, {time.monotonic() - begin:.0f} s")
    return len(paths - pending - {c.path for c in r.bad}), len(r.bad)


def run(options):
    return compare_all(options.server)


def main():
    _, failed = compare_all(sys.argv[1] if len(sys.argv) > 1 else TOP / "build" / "server" / "holdfastd")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
