"""The gate passes on what sites need, byte for byte, and nothing else."""

import asyncio
import gzip
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from flwr.proto.fleet_pb2 import PushMessagesRequest

from fedkmeans.flower.deploy import gate as gate_module
from fedkmeans.flower.deploy.certificates import new_authority, new_server
from fedkmeans.flower.deploy.gate import PASSED, Gate

PULL = "/v1/fleet/pull-messages"
BODY = bytes(range(256)) * 5


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """The authority, and the file with its certificate."""
    found = new_authority("x")
    path = tmp_path_factory.mktemp("gate") / "authority.crt"
    path.write_bytes(found.certificate)
    return found, path


def response(status, headers=(), content=b""):
    """A response that is still to be read, as from a network."""
    headers = httpx.Headers(headers)
    headers["content-length"] = str(len(content))
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(content))


class SuperLink:
    """Notes what it is asked, and answers as it is told."""

    def __init__(self):
        self.requests = []
        self.answer = lambda request: response(200, content=b"answer")

    def __call__(self, request):
        request.read()
        self.requests.append(request)
        return self.answer(request)


@pytest.fixture
def superlink():
    return SuperLink()


@pytest.fixture
def gate(authority, superlink):
    found = Gate("https://superlink", str(authority[1]))
    # As the gate's own client, but with nothing behind it.
    found._client = httpx.AsyncClient(base_url="https://superlink", transport=httpx.MockTransport(superlink))
    return found


def call(gate, path=PULL, body=BODY, method="POST", headers=(), query=b"", parts=None):
    """Send a request as a server for ASGI does; returns status, headers and body."""
    raw = path if isinstance(path, bytes) else path.encode()
    scope = {
        "type": "http",
        "method": method,
        "path": raw.decode("latin1"),
        "raw_path": raw,
        "query_string": query,
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
        "client": ("10.0.0.1", 5),
    }
    parts = parts or [{"type": "http.request", "body": body, "more_body": False}]
    left, sent = iter(parts), []

    async def receive():
        return next(left)

    async def send(event):
        sent.append(event)

    asyncio.run(gate(scope, receive, send))
    if not sent:
        return None
    start, *bodies = sent
    assert start["type"] == "http.response.start"
    return start["status"], start["headers"], b"".join(one.get("body", b"") for one in bodies)


# --- what passes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(PASSED))
def test_what_a_site_needs_passes(path, gate, superlink):
    body = b"" if path.endswith(b"push-messages") else BODY
    status, _, answer = call(gate, path, body)
    assert (status, answer) == (200, b"answer")
    (request,) = superlink.requests
    assert (request.method, request.url.raw_path, request.content) == ("POST", path, body)


NOT_PASSED = [
    "/",
    "",
    "/health",
    "/docs",
    "/openapi.json",
    "/v1/fleet/register-node",
    "/v1/fleet/unregister-node",
    "/v1/control/start-run",
    "/v1/control/register-node",
    "/v1/runtime/acquire-task",
    PULL + "/",
    PULL + "%20",
    PULL + "\x00",
    "/" + PULL,
    PULL[1:],
    PULL.upper(),
    PULL.replace("pull", "%70ull"),
    "/v1/./fleet/pull-messages",
    "/v1/fleet/../fleet/pull-messages",
    "/v1/fleet/pull-messages/../../control/start-run",
    "/v1/fleet/pull-messages%2f..%2f..%2fcontrol%2fstart-run",
    "/v1/fleet/pull-messages;x",
    "/v1/fleet/pull-messages#x",
    "https://superlink" + PULL,
    "/v1/fleet/pull-messages\r\nx: y",
    b"/v1/fleet/pull-messages\xff",
]


@pytest.mark.parametrize("path", NOT_PASSED)
def test_no_other_path_passes_however_it_is_written(path, gate, superlink):
    assert call(gate, path)[0] == 404
    assert superlink.requests == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "CONNECT", "post", ""])
def test_no_other_method_passes(method, gate, superlink):
    assert call(gate, method=method)[0] == 404
    assert superlink.requests == []


def test_no_question_mark_passes(gate, superlink):
    assert call(gate, query=b"x=1")[0] == 404
    assert superlink.requests == []


def test_the_path_that_counts_is_the_raw_one(gate, superlink):
    """Servers also give the path with its escapes undone."""
    scope = {"type": "http", "method": "POST", "path": PULL, "headers": [], "query_string": b""}

    async def send(event):
        sent.append(event)

    async def receive():
        return {"type": "http.request"}

    for raw in ({}, {"raw_path": PULL.replace("pull", "%70ull").encode()}):
        sent = []
        asyncio.run(gate({**scope, **raw}, receive, send))
        assert sent[0]["status"] == 404
    assert superlink.requests == []


def test_no_other_kind_of_connection_is_answered(gate, superlink):
    async def never(*_):
        raise AssertionError

    asyncio.run(gate({"type": "websocket", "path": PULL, "raw_path": PULL.encode()}, never, never))
    assert superlink.requests == []


# --- how it passes -------------------------------------------------------------------------------


def test_headers_pass_but_for_those_of_a_connection(gate, superlink):
    mine = [("Flwr-Public-Key", "abc"), ("flwr-signature", "x=="), ("content-type", "application/protobuf")]
    own = [
        ("Host", "fed.example.org"),
        ("Connection", "keep-alive"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Trailer", "x"),
        ("Upgrade", "websocket"),
        ("Proxy-Connection", "close"),
        ("Transfer-Encoding", "chunked"),
    ]
    call(gate, headers=mine + own)
    (request,) = superlink.requests
    for name, value in mine:
        assert request.headers[name] == value
    for name in ("keep-alive", "te", "trailer", "upgrade", "proxy-connection", "transfer-encoding"):
        assert name not in request.headers
    assert request.headers["host"] == "superlink"
    assert request.headers["content-length"] == str(len(BODY))


def test_a_header_may_come_twice(gate, superlink):
    call(gate, headers=[("x", "1"), ("x", "2")])
    assert superlink.requests[0].headers.get_list("x") == ["1", "2"]


def test_a_body_in_parts_passes_whole(gate, superlink):
    bodies = [BODY[start : start + 100] for start in range(0, len(BODY), 100)]
    parts = [{"type": "http.request", "body": body, "more_body": True} for body in bodies]
    assert call(gate, parts=[*parts, {"type": "http.request"}])[0] == 200
    assert superlink.requests[0].content == BODY


def test_half_a_body_does_not_pass(gate, superlink):
    """Who is cut off while sending has said nothing."""
    parts = [{"type": "http.request", "body": b"half", "more_body": True}, {"type": "http.disconnect"}]
    call(gate, parts=parts)
    assert superlink.requests == []


def test_a_body_that_is_too_large_does_not_pass(gate, superlink, monkeypatch):
    monkeypatch.setattr(gate_module, "MAX_BODY", len(BODY))
    assert call(gate)[0] == 200
    assert call(gate, body=BODY + b"x")[0] == 413
    assert len(superlink.requests) == 1

    def endless():
        while True:
            yield {"type": "http.request", "body": BODY, "more_body": True}

    assert call(gate, parts=endless())[0] == 413


@pytest.mark.parametrize("status", [200, 204, 400, 401, 403, 404, 500, 503])
def test_the_answer_passes_as_it_is(status, gate, superlink):
    headers = [("content-type", "application/protobuf"), ("x", "1"), ("x", "2"), ("connection", "close")]
    superlink.answer = lambda request: response(status, headers=headers, content=BODY)
    found, passed, body = call(gate)
    assert (found, body) == (status, BODY)
    names = [name.lower() for name, _ in passed]
    assert [value for name, value in passed if name.lower() == b"x"] == [b"1", b"2"]
    assert b"connection" not in names
    assert dict(passed)[b"content-type"] == b"application/protobuf"


def test_a_redirection_is_not_followed(gate, superlink):
    superlink.answer = lambda request: response(307, headers={"location": "https://elsewhere/"})
    assert call(gate)[0] == 307
    assert len(superlink.requests) == 1


def test_an_answer_that_is_compressed_passes_as_it_is(gate, superlink):
    packed, told = gzip.compress(BODY), {"content-encoding": "gzip"}
    superlink.answer = lambda request: response(200, headers=told, content=packed)
    _, headers, body = call(gate, headers=[("accept-encoding", "gzip")])
    headers = {name.lower(): value for name, value in headers}
    assert body == (packed if headers.get(b"content-encoding") else BODY)
    assert headers.get(b"content-length", str(len(body)).encode()) == str(len(body)).encode()


@pytest.mark.parametrize(
    "error", [httpx.ConnectError, httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.ReadError]
)
def test_trouble_behind_the_gate_is_told_as_something_that_passes(error, gate, superlink):
    """Sites try again after 503; after most other answers Flower's SuperNode would never ask again."""

    def fail(request):
        raise error("x")

    superlink.answer = fail
    assert call(gate)[0] == 503


# --- who speaks for whom -------------------------------------------------------------------------


def pushed(node, *messages):
    request = PushMessagesRequest()
    request.node.node_id = node
    for source, reply_to in messages:
        message = request.messages_list.add()
        message.metadata.src_node_id, message.metadata.reply_to_message_id = source, reply_to
    return request.SerializeToString()


PUSH = "/v1/fleet/push-messages"


@pytest.mark.parametrize("messages", [(), [(5, "m1")], [(5, "m1"), (5, "m2")]])
def test_a_node_may_reply_for_itself(messages, gate, superlink):
    body = pushed(5, *messages)
    assert call(gate, PUSH, body)[0] == 200
    assert superlink.requests[0].content == body


@pytest.mark.parametrize("messages", [[(6, "m1")], [(5, "m1"), (6, "m2")], [(5, "")], [(1, "")]])
def test_a_node_may_not_speak_for_others_nor_ask(messages, gate, superlink):
    assert call(gate, PUSH, pushed(5, *messages))[0] == 400
    assert superlink.requests == []


def test_a_node_that_pushes_noise_is_refused(gate, superlink):
    assert call(gate, PUSH, b"\xff\xff\xff")[0] == 400
    assert superlink.requests == []


# --- a real SuperLink's TLS ----------------------------------------------------------------------


class Echo(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(207)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-path", self.path)
        self.end_headers()
        self.wfile.write(body[::-1])

    def log_message(self, *_):
        pass


@pytest.fixture
def echo(tmp_path, authority):
    """A server in TLS on this machine; returns its port. Its certificate is signed by another if told so."""
    servers = []

    def start(signed_by=authority[0], hosts=("127.0.0.1",)):
        certified = new_server(signed_by, hosts)
        (tmp_path / "crt").write_bytes(certified.certificate)
        (tmp_path / "key").write_bytes(certified.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
        server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        servers.append(server)
        return server.server_address[1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_the_gate_speaks_tls_with_the_superlink(echo, authority):
    status, headers, body = call(Gate(f"https://127.0.0.1:{echo()}", str(authority[1])))
    assert (status, body) == (207, BODY[::-1])
    assert dict(headers)[b"x-path"] == PULL.encode()


@pytest.mark.parametrize(
    "fake", [{"signed_by": new_authority("x")}, {"hosts": ("elsewhere",)}], ids=["authority", "name"]
)
def test_the_gate_trusts_nobody_else_behind_it(fake, echo, authority):
    assert call(Gate(f"https://127.0.0.1:{echo(**fake)}", str(authority[1])))[0] == 503


def test_no_proxy_of_the_environment_comes_between(echo, authority, monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert call(Gate(f"https://127.0.0.1:{echo()}", str(authority[1])))[0] == 207


def test_nothing_behind_the_gate_is_503(authority):
    assert call(Gate("https://127.0.0.1:9", str(authority[1])))[0] == 503


def test_the_gate_begins_and_ends_as_a_server_wishes(authority):
    gate = Gate("https://127.0.0.1:9", str(authority[1]))
    events, sent = iter(["lifespan.startup", "lifespan.shutdown"]), []

    async def receive():
        return {"type": next(events)}

    async def send(event):
        sent.append(event["type"])

    asyncio.run(gate({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert gate._client.is_closed
