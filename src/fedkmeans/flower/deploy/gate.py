"""The gate: the public port of a federation. It uses TLS and passes on only the requests that sites need.

Flower's SuperLink serves three interfaces on one port: one for sites, one for its own executor, and one
that starts runs and registers keys without authentication. The SuperLink therefore listens to this machine
only, and sites connect to the gate. It compares raw paths exactly, so no other spelling of a path passes.
"""

from __future__ import annotations

import argparse
import logging
import ssl
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any

import httpx
import uvicorn
from flwr.proto.fleet_pb2 import PushMessagesRequest
from google.protobuf.message import DecodeError

log = logging.getLogger(__name__)

# Requests of a site with a registered key. Registering keys is not one of them: the server does this.
_STEPS = (
    "activate-node deactivate-node send-node-heartbeat pull-messages push-messages get-run get-fab "
    "push-object pull-object confirm-message-received"
)
PASSED = frozenset(f"/v1/fleet/{step}".encode() for step in _STEPS.split())
_PUSH = b"/v1/fleet/push-messages"
# Headers of a single connection, and the host name of the request.
_OWN = frozenset(b"connection keep-alive proxy-connection te trailer transfer-encoding upgrade host".split())
# Flower splits larger objects into pieces of 5 MiB.
MAX_BODY = 16 * 2**20

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class Gate:
    """An ASGI application that passes requests on to a SuperLink at the address ``https://HOST:PORT``.

    The file `authority` has the certificate of the authority that signs the SuperLink's certificate.
    """

    def __init__(self, superlink: str, authority: str) -> None:
        self._client = httpx.AsyncClient(
            base_url=superlink,
            verify=ssl.create_default_context(cafile=authority),
            trust_env=False,  # ignore proxies in the environment
            timeout=httpx.Timeout(60.0, connect=5.0),
            limits=httpx.Limits(max_connections=256, max_keepalive_connections=64),
        )

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Handle one request, or the start and end of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._pass(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await self._client.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _pass(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        path: bytes = scope.get("raw_path", b"")
        if scope["method"] != "POST" or path not in PASSED or scope.get("query_string"):
            if (scope["method"], path) != ("HEAD", b"/"):  # a site asks for the time before it joins
                log.warning("refused %s %r from %s", scope["method"], path[:200], scope.get("client"))
            # Not 403, which has another meaning for Flower.
            return await _answer(send, 404, b"not found")
        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in _OWN]
        body = await _body(receive)
        if body is None:
            return await _answer(send, 413, b"too large")
        if path == _PUSH and not speaks_for_itself(body):
            log.warning("refused messages in another's name from %s", scope.get("client"))
            return await _answer(send, 400, b"replies in the name of the node that signs, and nothing else")
        request = self._client.build_request("POST", path.decode("ascii"), headers=headers, content=body)
        try:
            response = await self._client.send(request, stream=True)
            content = b"".join([part async for part in response.aiter_raw()])  # without decompression
            await response.aclose()
        except httpx.TransportError as error:
            log.warning("the SuperLink does not answer: %r", error)
            return await _answer(send, 503, b"the server is starting or down")  # sites try again
        passed = [(name, value) for name, value in response.headers.raw if name.lower() not in _OWN]
        await send({"type": "http.response.start", "status": response.status_code, "headers": passed})
        return await send({"type": "http.response.body", "body": content})


def speaks_for_itself(body: bytes) -> bool:
    """Return whether all messages that a node pushes are replies in its own name.

    Flower checks who signs the request, but not the sender of the messages in it: a node could answer for
    another one, or send it a query in the server's name.
    """
    request = PushMessagesRequest()
    try:
        request.ParseFromString(body)
    except DecodeError:
        return False
    told = [message.metadata for message in request.messages_list]
    return all(one.src_node_id == request.node.node_id and one.reply_to_message_id for one in told)


async def _body(receive: Receive) -> bytes | None:
    """Return the body of a request, or None if it is too large or does not arrive."""
    body = bytearray()
    while True:
        part = await receive()
        body += part.get("body", b"")
        if part["type"] == "http.disconnect" or len(body) > MAX_BODY:
            return None
        if not part.get("more_body", False):
            return bytes(body)


async def _answer(send: Send, status: int, text: bytes) -> None:
    length = str(len(text)).encode()
    # Sites compare clocks, and the date header of the web server is seconds old.
    now = formatdate(usegmt=True).encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", length), (b"date", now)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def main() -> None:
    """Run the gate until the process ends."""
    parser = argparse.ArgumentParser(description="Pass what sites need on to a SuperLink.")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, required=True)
    for name in ("--certificate", "--key", "--superlink", "--authority"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    uvicorn.run(
        Gate(given.superlink, given.authority),
        host=given.host,
        port=given.port,
        ssl_certfile=given.certificate,
        ssl_keyfile=given.key,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=30,
        limit_concurrency=256,
    )


if __name__ == "__main__":
    main()
