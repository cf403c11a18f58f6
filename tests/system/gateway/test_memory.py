"""The memory of a call ends with the call, in each way that a call can end.

The tests look for bodies among all objects of the process, with the garbage collector off: bodies
in reference cycles count as kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import batches
from support.raw_client import raw
from support.waiting import DEADLINE_S
from websockets.asyncio.client import connect

pytestmark = [pytest.mark.system, pytest.mark.anyio]

TIMES = 3
# In each body, and nowhere else.
MARK = b"kept" * 4096


def kept_bodies() -> int:
    """Return the number of objects that contain MARK and that another object refers to."""
    found = set()
    for holder in gc.get_objects():
        for value in gc.get_referents(holder):
            if type(value) in (bytes, bytearray, str) and len(value) >= len(MARK):
                mark = MARK.decode() if type(value) is str else MARK
                if value is not MARK and mark in value:
                    found.add(id(value))
    return len(found)


@pytest.fixture(autouse=True)
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def request(
    path: str = "/v1/chat/completions", content: Any = "", declared: int = 0, **body: Any
) -> bytes:
    """Return a request whose body contains MARK. declared: bytes that the head announces in
    addition.
    """
    text = MARK.decode()
    own = {"input": text} if path == "/v1/responses" else {"prompt": text, "max_tokens": 9}
    own |= (
        {"messages": [{"role": "user", "content": text}]} if path[4:8] in ("chat", "mess") else {}
    )
    sent = json.dumps({"model": "tiny"} | own | body).encode()
    size = len(sent) + declared
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n"
    return head.encode() + sent


@dataclass
class Scene:
    """A gateway and the way in which its engine behaves."""

    gateway: Any
    engine: Any
    until: Any
    arrived: asyncio.Event

    async def status(self, *sent: bytes) -> int:
        """Send requests on one connection. Return the status of the last answer."""
        async with raw(self.gateway) as client:
            status = 0
            await client.send(*sent)
            for _ in sent:
                async with asyncio.timeout(DEADLINE_S):
                    head = await client.reader.readuntil(b"\r\n\r\n")
                status = int(head.split()[1])
                if b"transfer-encoding" in head:
                    await client.reader.readuntil(b"0\r\n\r\n")
                else:
                    size = int(head.lower().partition(b"content-length: ")[2].split()[0])
                    await client.reader.readexactly(size)
            return status

    async def leave(self, sent: bytes, begun: bool = False) -> None:
        """Leave after the engine has the call. begun: after the answer has begun."""
        async with raw(self.gateway) as client:
            await client.send(sent)
            async with asyncio.timeout(DEADLINE_S):
                await self.arrived.wait()
                if begun:
                    await client.reader.readuntil(b"data: ")
        self.arrived.clear()

    async def socket(self, leave: bool = False, **body: Any) -> None:
        """Make a call over a WebSocket. leave: in the middle of its answer."""
        url = self.gateway.url.replace("http", "ws", 1) + "/v1/responses"
        async with connect(url, proxy=None, max_size=None) as client:
            about = {"type": "response.create", "model": "tiny", "input": MARK.decode()}
            about |= {"store": False}
            await client.send(json.dumps(about | body))
            async with asyncio.timeout(DEADLINE_S):
                if leave:
                    await self.arrived.wait()
                    client.transport.abort()
                else:
                    while json.loads(await client.recv())["type"] not in ENDS:
                        pass
        self.arrived.clear()


ENDS = ("response.completed", "error")
HELD = "leaves"
TEXT = [{"role": "user", "content": MARK.decode()}]


async def behave(wire: Any, request: Any, arrived: asyncio.Event) -> None:
    """Answer as the request's `user` says."""
    asked = json.loads(request.raw)
    how, stream = asked.get("user") or asked.get("chat_template"), asked.get("stream")
    del asked
    request.raw = b""
    if how == "error":
        await wire.plain({"error": {"message": "no", "code": "bad"}}, "500 Internal Server Error")
    elif how == "refused":
        await wire.plain({"error": {"message": "no", "code": "bad"}}, "400 Bad Request")
    elif how == "closes":
        wire.writer.close()
    elif how == "breaks off":
        await wire.stream(b'data: {"id": "1"}\n\n', end=False)
        wire.writer.close()
    elif how == "garbage":
        await wire.send(b"no HTTP\r\n\r\n")
    elif how == "large":
        await wire.plain({"id": "x" * 4096})
    elif how == HELD:
        if stream:
            await wire.stream(b'data: {"id": "1"}\n\n', end=False)
        arrived.set()
        await wire.closed()
    elif stream:
        done = {"id": "resp_1", "object": "response", "output": []}
        event = json.dumps({"type": "response.completed", "response": done})
        await wire.stream(f"event: response.completed\ndata: {event}\n\ndata: [DONE]\n\n".encode())
    else:
        await wire.plain({"id": "x", "object": "chat.completion"})


async def pipelined(scene: Scene) -> None:
    """Leave while a second request waits behind the first one."""
    await scene.leave(request(user=HELD) + request(user=HELD))


async def left_in_body(scene: Scene) -> None:
    async with raw(scene.gateway) as client:
        await client.send(request(declared=9))


async def left_in_message(scene: Scene) -> None:
    url = scene.gateway.url.replace("http", "ws", 1) + "/v1/responses"
    async with connect(url, proxy=None) as client:

        async def pieces() -> AsyncIterator[str]:
            yield MARK.decode()
            yield MARK.decode()
            client.transport.abort()

        with contextlib.suppress(Exception):
            await client.send(pieces())


async def too_large_in_http_1_0(scene: Scene) -> None:
    assert await scene.status(request().replace(b"HTTP/1.1", b"HTTP/1.0")) == 413


async def left_while_held(scene: Scene) -> None:
    """Leave while calls wait until other clients use the engine less."""
    for replica in scene.gateway.parts.registry:
        replica.slots = 8
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(raw(scene.gateway)) for _ in range(9)]
        await clients[0].send(request(user=HELD))
        async with asyncio.timeout(DEADLINE_S):
            await scene.arrived.wait()
        for client in clients[1:]:
            await client.send(request(user=HELD, service_tier="flex"))
        await scene.until(lambda: scene.gateway.in_flight() == 5)
    scene.arrived.clear()


async def left_in_upload(scene: Scene) -> None:
    form = b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n' + MARK
    head = b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 99999\r\n"
    async with raw(scene.gateway) as client:
        await client.send(head + b"content-type: multipart/form-data; boundary=x\r\n\r\n" + form)


async def failed_batch(scene: Scene) -> None:
    async with batches.client_of(scene.gateway) as client:
        for wrong in ({"user": "refused"}, {"session_id": "x" * 999}):
            await batches.run(client, batches.lines(batches.line(1, MARK.decode(), **wrong)))


def answered(status: int, *args: Any, **body: Any) -> Callable[[Scene], Awaitable[None]]:
    async def scene(scene: Scene) -> None:
        assert await scene.status(request(*args, **body)) == status

    return scene


def left(*args: Any, begun: bool = False, **body: Any) -> Callable[[Scene], Awaitable[None]]:
    return lambda scene: scene.leave(request(*args, user=HELD, **body), begun)


WAYS: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "answered": answered(200),
    "answered stream": answered(200, stream=True),
    "answered, as Messages": answered(200, "/v1/messages"),
    "left while waiting": left(),
    "left while waiting, as Messages": left("/v1/messages"),
    "left in a stream": left(stream=True, begun=True),
    "left in the body": left_in_body,
    "left with a second request": pipelined,
    "left while held": left_while_held,
    "left in an upload": left_in_upload,
    "no replica": answered(503),
    "unreachable replica": answered(503),
    "unknown model": answered(404, model="no"),
    "unknown model, as Messages": answered(404, "/v1/messages", model="no"),
    "invalid id": answered(400, session_id="x" * 999),
    "lost answer": answered(400, "/v1/responses", previous_response_id="resp_no"),
    "error of the engine": answered(500, user="error"),
    "engine closes": answered(502, user="closes"),
    "engine breaks off": answered(200, user="breaks off", stream=True),
    "engine sends garbage": answered(502, user="garbage"),
    "engine answers too much": answered(502, user="large"),
    "engine is too slow": answered(504, user=HELD),
    "too large": answered(413, content="x"),
    "too large, HTTP/1.0": too_large_in_http_1_0,
    "token count": answered(200, "/tokenize"),
    "token count fails": answered(502, "/tokenize", user="closes"),
    "prefill": answered(201, "/v1/hints/prefill", session_id="a", messages=TEXT),
    "prefill fails": answered(
        201, "/v1/hints/prefill", session_id="a", messages=TEXT, chat_template="closes"
    ),
    "WebSocket": lambda scene: scene.socket(),
    "WebSocket left": lambda scene: scene.socket(leave=True, user=HELD),
    "WebSocket left in a message": left_in_message,
    "WebSocket, error of the engine": lambda scene: scene.socket(user="error"),
    "WebSocket, engine closes": lambda scene: scene.socket(user="closes"),
    "WebSocket, unknown model": lambda scene: scene.socket(model="no"),
    "batch fails": failed_batch,
}


@pytest.mark.parametrize("way", WAYS)
async def test_no_body_outlives_its_call(way: str, engine: Any, weft: Any, until: Any) -> None:
    arrived = asyncio.Event()
    # Short ticks, in which calls are looked at.
    settings: dict[str, Any] = {"max_answer_bytes": 2048, "heartbeat_s": 0.1}
    if way == "engine is too slow":
        settings["first_byte_timeout_s"] = 0.2
    if way.startswith("too large"):
        settings["max_body_bytes"] = 2 * len(MARK)

    async def script(wire: Any, request: Any) -> None:
        stub.requests.clear()
        await behave(wire, request, arrived)

    healthy = way != "no replica"
    async with engine(script=script, healthy=healthy) as stub, weft(stub, **settings) as gateway:
        scene = Scene(gateway, stub, until, arrived)
        if way == "unreachable replica":
            stub.refuse()
        for _ in range(TIMES):
            await WAYS[way](scene)
        await until(lambda: gateway.in_flight() == 0)
        await until(lambda: not kept_bodies())


def unread(server: int, client: int) -> int | None:
    """Return the bytes that the kernel keeps for a client, None after the end of the connection."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        if (int(local[-4:], 16), int(remote[-4:], 16)) == (server, client):
            return int(queues.partition(":")[0], 16)
    return None


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_the_kernel_keeps_little_for_a_client_that_does_not_read(
    stream: bool, engine: Any, weft: Any, until: Any
) -> None:
    """Without limits, it keeps several megabytes, also after the connection has been closed."""

    async def script(wire: Any, request: Any) -> None:
        if not stream:
            await wire.plain({"x": "y" * 16_000_000})
            return
        await wire.stream(end=False)
        while True:
            await wire.pieces(b"data: %b\n\n" % (b"x" * 65_536), end=False)

    settings = {"send_timeout_s": 1.5, "max_answer_bytes": 100_000_000}
    async with (
        engine(script=script) as stub,
        weft(stub, **settings) as gateway,
        raw(gateway, buffer=4096) as client,
    ):
        port, own = int(gateway.url.rpartition(":")[2]), client.writer.get_extra_info("sockname")[1]
        client.writer.transport.pause_reading()
        await client.send(request(stream=stream))
        most = 0
        async with asyncio.timeout(DEADLINE_S):
            while (kept := unread(port, own)) is not None:
                most = max(most, kept)
                metrics = (await gateway.client.get("/metrics")).text
                if "client_stalled" in metrics:
                    break
                await asyncio.sleep(0.02)
        assert 0 < most <= 1 << 19
        await until(lambda: not unread(port, own))
