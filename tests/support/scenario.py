"""Plays a scenario against a gateway process: a table of bytes that clients, engines, Redis and
commands send and expect.

Each step is `ACTOR VERB: TEXT`. The methods of `Play` are the verbs. An actor is an engine of the
table, `gateway`, `redis`, `command`, or else a client with one connection. A message is a text: its
head, an empty line, its body. The player adds `host` and `content-length` to what it sends, and
removes chunked coding from what it gets. Everything else is compared, except for placeholders.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from support.placeholders import Placeholders
from support.redis_server import RedisServer
from support.scripted_engine import Engine, Received, Wire
from support.waiting import DEADLINE_S
from websockets.asyncio.client import ClientConnection, connect
from weft_bench.stack.processes import free_port

COMMAND = (sys.executable, "-m", "weft_gateway.cli")


def split(text: str) -> tuple[list[str], bytes]:
    """Return the lines of a message's head, and its body."""
    head, _, body = text.partition("\n\n")
    return head.strip("\n").split("\n"), body.encode()


def joined(head: list[str], body: bytes = b"") -> bytes:
    """Return a message's bytes."""
    return "\r\n".join([*head, "", ""]).encode() + body


class Answers:
    """The answers on one connection of a client. rest: text that no step has expected yet."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.reader = reader
        self.rest = ""
        self._chunked = self._whole = False

    async def more(self) -> bool:
        """Read a part of an answer. Return False at its end."""
        if self._whole:
            self._whole = False
            return False
        if not self._chunked:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            self.rest += head.replace("\r\n", "\n")
            self._chunked = "transfer-encoding: chunked" in head
            if not self._chunked:
                length = re.search(r"content-length: (\d+)", head)
                raw = await self.reader.readexactly(int(length[1]) if length else 0)
                self.rest += raw.decode()
                self._whole = True
            return True
        size = int(await self.reader.readline(), 16)
        self.rest += (await self.reader.readexactly(size)).decode()
        await self.reader.readexactly(2)
        self._chunked = size > 0
        return size > 0


@dataclass
class Exchange:
    """A request at an engine. over: it is answered."""

    wire: Wire
    request: Received
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Actor:
    """An engine of the table. open: the requests that it has not answered, the latest one last."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.engine.script = self._wait
        self.arrived: asyncio.Queue[Exchange] = asyncio.Queue()
        self.open: list[Exchange] = []
        self._tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, port: int = 0) -> int:
        """Listen on a port, and return its number."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks[asyncio.create_task(self.engine.handle(reader, writer))] = writer

    async def _wait(self, wire: Wire, request: Received) -> None:
        exchange = Exchange(wire, request)
        self.arrived.put_nowait(exchange)
        await exchange.over.wait()

    async def checked(self) -> None:
        """Wait until the gateway has checked the engine's health once more."""
        checks = self.engine.checks
        while self.engine.checks == checks:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    async def leave(self) -> None:
        """Close the port and break all connections."""
        assert self._server is not None
        self._server.close()
        for task, writer in self._tasks.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self.open.clear()


class Play:
    """One play of a table. Used as a context, which ends all that the play has started."""

    def __init__(self, table: dict[str, Any], folder: Path) -> None:
        self.table = table
        self.folder = folder
        self.texts = Placeholders()
        self.engines: dict[str, Actor] = {}
        self.clients: dict[str, tuple[Answers, asyncio.StreamWriter]] = {}
        self.sockets: dict[str, ClientConnection] = {}
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.redis: RedisServer | None = None
        self.port = free_port()

    async def __aenter__(self) -> Play:
        environment = {name: str(value) for name, value in self.table.get("settings", {}).items()}
        for name, text in self.table.get("files", {}).items():
            (self.folder / name).write_text(text)
        if self.table.get("redis"):
            # The rows are on the disk, so that a restart keeps them.
            self.redis = RedisServer(self.folder, "appendonly yes\nappendfsync always\n")
            environment["WEFT_REDIS_URL"] = self.redis.url
        for name, options in self.table["engines"].items():
            self.engines[name] = actor = Actor(Engine(**(options or {})))
            self.texts.known[f"port {name}"] = str(await actor.listen())
        ports = {name: self.texts.known[f"port {name}"] for name in self.engines}
        environment |= {
            "WEFT_REPLICAS": ",".join(f"{n}=http://127.0.0.1:{port}" for n, port in ports.items()),
            "WEFT_DATA_DIR": str(self.folder / "data"),
            "WEFT_PORT": str(self.port),
        }
        self.texts.known["port gateway"] = str(self.port)
        await self._start("gateway", "serve", **environment)
        errors = self.processes["gateway"].stderr
        assert errors is not None
        async with asyncio.timeout(DEADLINE_S):
            while b"serving http" not in (line := await errors.readline()):
                assert line, "the gateway has ended"
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.returncode is None:
                process.kill()
                await process.wait()
        for socket in self.sockets.values():
            await socket.close()
        for _, writer in self.clients.values():
            writer.close()
        for actor in self.engines.values():
            await actor.leave()
        if self.redis is not None:
            self.redis.kill()

    async def play(self) -> None:
        """Play all steps. Then the gateway has no open call, and stops without an error."""
        for number, step in enumerate(self.table["steps"], 1):
            (words, text), *rest = step.items()
            actor, _, verb = words.partition(" ")
            try:
                async with asyncio.timeout(DEADLINE_S):
                    play = getattr(self, verb.replace(" ", "_"))
                    await play(actor, "" if text is None else text, **dict(rest))
            except Exception as error:
                error.add_note(f"step {number}: {words}: {text}")
                raise
        for name, actor_ in self.engines.items():
            assert actor_.arrived.empty(), f"{name} got a call that no step expects"
        if self.processes["gateway"].returncode is None:
            state = '"in_flight":{},'
            await self.repeats("end", "GET /weft/state HTTP/1.1", lambda text: state in text)
            await self.stops("gateway")
            await self.ended("gateway", 0)

    # Clients.

    async def sends(self, name: str, text: str) -> None:
        """Send a request, on the client's connection if it has one."""
        if name not in self.clients:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
            self.clients[name] = Answers(reader), writer
        head, body = split(self.texts.fill(text))
        if any("multipart" in line for line in head):
            body = body.replace(b"\n", b"\r\n")
        head.append("host: 127.0.0.1")
        if body:
            head.append(f"content-length: {len(body)}")
        self.clients[name][1].write(joined(head, body))

    async def gets(self, name: str, text: str) -> None:
        """A client gets the rest of its answer, or an engine gets a request."""
        if name in self.engines:
            self.engines[name].open.append(await self.engines[name].arrived.get())
            request = self.engines[name].open[-1].request
            lines = [f"{key}: {value}" for key, value in request.headers.items()]
            head = "\n".join([f"{request.method} {request.target} HTTP/1.1", *lines])
            self._expect(text, f"{head}\n\n{request.raw.decode()}")
            return
        self._expect(text, await self._answer(name))

    async def _answer(self, name: str) -> str:
        answers, _ = self.clients[name]
        while await answers.more():
            pass
        found, answers.rest = answers.rest, ""
        return found

    async def sees(self, name: str, text: str) -> None:
        """A client gets the next part of a stream."""
        answers, _ = self.clients[name]
        try:
            while not self.texts.match(text, answers.rest):
                assert await answers.more(), "the answer has ended"
        except (AssertionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            self._expect(text, answers.rest)
        answers.rest = ""

    async def asks(self, name: str, text: str, gets: str = "", until: str = "") -> None:
        """Send a request and get its answer. until: repeat the request until it has this answer."""
        if until:
            await self.repeats(name, text, lambda found: self.texts.match(until, found), until)
            return
        await self.sends(name, text)
        await self.gets(name, gets)

    async def repeats(
        self, name: str, text: str, good: Callable[[str], bool], expected: str = ""
    ) -> None:
        """Send a request until its answer is good."""
        found = ""
        try:
            async with asyncio.timeout(DEADLINE_S / 2):
                while not good(found):
                    await asyncio.sleep(0.05)
                    await self.sends(name, text)
                    found = await self._answer(name)
        except TimeoutError:
            self._expect(expected, found)

    async def leaves(self, name: str, _: str) -> None:
        """A client breaks its connection, or an engine closes its port and all connections."""
        if name in self.engines:
            # Just after a health check, so that a call is the first to find the port closed.
            await self.engines[name].checked()
            await self.engines[name].leave()
        else:
            self.clients.pop(name)[1].transport.abort()

    async def is_left(self, name: str, _: str) -> None:
        """The gateway has closed the connection of a client, or of an engine's request."""
        if name in self.engines:
            exchange = self.engines[name].open.pop()
            await exchange.wire.closed()
            exchange.over.set()
        else:
            assert await self.clients.pop(name)[0].reader.read() == b""

    async def is_refused(self, name: str, _: str) -> None:
        """The gateway closes its port to new connections."""
        assert name not in self.clients
        with contextlib.suppress(ConnectionRefusedError):
            while True:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                await asyncio.sleep(0.01)

    # Clients with a WebSocket.

    async def opens(self, name: str, path: str, headers: dict[str, str] | None = None) -> None:
        """Open a WebSocket."""
        url = f"ws://127.0.0.1:{self.port}{path}"
        self.sockets[name] = await connect(
            url, additional_headers=headers, user_agent_header=None, proxy=None
        )

    async def says(self, name: str, text: str) -> None:
        """Send a message."""
        await self.sockets[name].send(self.texts.fill(text))

    async def hears(self, name: str, text: str) -> None:
        """Receive the next message."""
        self._expect(text, str(await self.sockets[name].recv()))

    async def is_closed(self, name: str, text: str) -> None:
        """The gateway closes the WebSocket with this code and reason."""
        await self.sockets[name].wait_closed()
        self._expect(
            text, f"{self.sockets[name].close_code} {self.sockets[name].close_reason}".strip()
        )

    # Engines.

    async def answers(self, name: str, text: str) -> None:
        """Send a whole answer to the latest open request."""
        exchange = self.engines[name].open.pop()
        head, body = split(self.texts.fill(text))
        await exchange.wire.send(joined([*head, f"content-length: {len(body)}"], body))
        exchange.over.set()

    async def streams(self, name: str, text: str) -> None:
        """Begin a streamed answer to the latest open request."""
        head, body = split(self.texts.fill(text))
        wire = self.engines[name].open[-1].wire
        await wire.send(joined([*head, "transfer-encoding: chunked"]))
        await wire.pieces(*[body] * bool(body), end=False)

    async def adds(self, name: str, text: str) -> None:
        """Send a piece of a streamed answer."""
        wire = self.engines[name].open[-1].wire
        await wire.pieces(self.texts.fill(text).encode(), end=False)

    async def finishes(self, name: str, text: str) -> None:
        """Send the last piece of a streamed answer, and its end."""
        exchange = self.engines[name].open.pop()
        await exchange.wire.pieces(*[self.texts.fill(text).encode()] * bool(text))
        exchange.over.set()

    async def breaks(self, name: str, _: str) -> None:
        """Break the connection of the latest open request."""
        exchange = self.engines[name].open.pop()
        exchange.wire.writer.transport.abort()
        exchange.over.set()

    async def returns(self, name: str, _: str) -> None:
        """An engine or Redis listens again."""
        if self.redis is not None and name == "redis":
            await asyncio.to_thread(self.redis.start)
        else:
            await self.engines[name].listen(int(self.texts.known[f"port {name}"]))

    # Redis, the gateway and commands.

    async def has(self, name: str, text: str) -> None:
        """Redis has exactly these entries: `KEY FIELD VALUE` for a hash, `KEY MEMBER` for a sorted
        set. The signs of life of gateways are left out, because they follow a clock.
        """
        assert self.redis is not None
        assert name == "redis"
        client = redis.Redis(port=self.redis.port, decode_responses=True)
        lines = []
        for key in client.scan_iter():
            if key.endswith((":gateways", ":members_confirmed")):
                continue
            kind = client.type(key)
            if kind == "hash":
                lines += [f"{key} {field} {value}" for field, value in client.hgetall(key).items()]
            elif kind == "zset":
                lines += [f"{key} {member}" for member in client.zrange(key, 0, -1)]
            else:
                lines.append(f"{key} {client.get(key)}")
        client.close()
        self._expect(text, "".join(line.replace("\n", "|") + "\n" for line in sorted(lines)))

    async def stops(self, name: str, _: str = "") -> None:
        """Send SIGTERM to the gateway or to a command, or kill Redis."""
        if name == "redis":
            assert self.redis is not None
            self.redis.kill()
        else:
            self.processes[name].send_signal(signal.SIGTERM)

    async def starts(self, name: str, text: str) -> None:
        """Start a `weft` command in the folder of the files."""
        await self._start(name, *self.texts.fill(text).split())

    async def _start(self, name: str, *arguments: str, **environment: str) -> None:
        self.processes[name] = await asyncio.create_subprocess_exec(
            *(*COMMAND, *arguments),
            cwd=self.folder,
            env=os.environ | {"NO_COLOR": "1"} | environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def ended(self, name: str, status: int, said: str | None = None) -> None:
        """A process ends with this status. said: what it has printed."""
        output, errors = await self.processes[name].communicate()
        assert self.processes[name].returncode == status, errors.decode()
        assert b"Traceback" not in errors, errors.decode()
        if said is not None:
            self._expect(said, (output + errors).decode())

    async def wrote(self, name: str, text: str) -> None:
        """A file has this text."""
        self._expect(text, (self.folder / name).read_text())

    def _expect(self, expected: str, found: str) -> None:
        if not self.texts.match(expected, found):
            raise AssertionError(f"expected:\n{expected}\n\nfound:\n{found}")
