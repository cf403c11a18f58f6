"""For arbitrary paths, ids, headers and bodies, the gateway never answers 5xx, and engines receive
only input of clients on the allow list.

`FUZZ_CASES` sets the number of requests. The default is 100,000.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote_from_bytes, urlsplit

import httptools
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.recording_engine import Recorder, RecordingProtocol
from support.waiting import DEADLINE_S
from weft_bench.stack.processes import free_port, running
from weft_gateway.programs.identity import tenant_of

pytestmark = pytest.mark.system

CASES = int(os.environ.get("FUZZ_CASES", "100000"))
BATCH = 200
CONNECTIONS = 8
PIPELINED = 5

# Client values that must not reach an engine in these places.
SALT, REQUEST, HIDDEN = "own-salt-of-client", "own-request-id", "hidden-of-client"
MARKS = tuple(word.encode() for word in (SALT, REQUEST, HIDDEN))


@dataclass
class Case:
    """One request. If `sound`, it is valid HTTP, and others may follow on its connection."""

    raw: bytes
    sound: bool
    status: int = 0
    tries: int = 0


class Reading:
    """The answers on one connection, in the order of the requests."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self._parser = httptools.HttpResponseParser(self)

    def on_message_complete(self) -> None:
        self.statuses.append(self._parser.get_status_code())

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)


@dataclass
class Gateway:
    """A gateway process in front of a recording engine, with an event loop for its clients."""

    url: str
    recorder: Recorder
    loop: asyncio.AbstractEventLoop
    statuses: Counter[int] = field(default_factory=Counter)

    def send(self, cases: Sequence[Case]) -> None:
        """Send all cases and wait for their answers."""
        done: Future[None] = asyncio.run_coroutine_threadsafe(self._send(cases), self.loop)
        done.result(DEADLINE_S)
        self.statuses.update(case.status for case in cases)

    async def _send(self, cases: Sequence[Case]) -> None:
        sound = [case for case in cases if case.sound]
        wild = [case for case in cases if not case.sound]
        await asyncio.gather(
            *(self._pipelined(sound[n::CONNECTIONS], PIPELINED) for n in range(CONNECTIONS)),
            *(self._pipelined(wild[n::CONNECTIONS], 1) for n in range(CONNECTIONS)),
        )

    async def _pipelined(self, cases: list[Case], ahead: int) -> None:
        parts = urlsplit(self.url)
        left = cases
        while left:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            reading, sent = Reading(), 0
            try:
                while len(reading.statuses) < len(left):
                    answered = len(reading.statuses)
                    if sent == answered:
                        batch = left[sent : sent + ahead]
                        sent += len(batch)
                        writer.write(b"".join(case.raw for case in batch))
                    if not (data := await reader.read(262_144)):
                        break
                    reading.feed(data)
            except ConnectionError:
                pass
            finally:
                writer.close()
            for case, status in zip(left, reading.statuses, strict=False):
                case.status = status
            left = left[len(reading.statuses) :]
            if left:
                # The connection closed before this answer.
                left[0].tries += 1
                if left[0].tries == 4:
                    # If invalid bytes follow a request in progress, the gateway aborts the
                    # connection without an answer, which a client could take for that request's.
                    assert not left[0].sound, f"no answer to {left[0].raw!r}"
                    left = left[1:]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Run the gateway with `weft serve`."""
    folder: Path = tmp_path_factory.mktemp("fuzz")
    recorder = Recorder(MARKS)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def listen() -> asyncio.Server:
        return await loop.create_server(lambda: RecordingProtocol(recorder), "127.0.0.1", 0)

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result(DEADLINE_S)
    engine = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "weft_gateway.cli", "serve", "--replica", engine]
    environment = {name: v for name, v in os.environ.items() if not name.startswith("WEFT_")}
    try:
        with running([*command, "--port", str(port)], f"{url}/ready", folder / "log", environment):
            yield Gateway(url, recorder, loop)
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(DEADLINE_S)


TENANTS = [b"", b"mine", b"theirs"]
KNOWN = [
    b"run", b"resp_" + b"0" * 31 + b"1", b"..", b"%", b"%0d%0a", b"\r\n", b"\x00", b"a/b", b"pf_1",
    tenant_of("mine").encode() + b"/run", b"\xff\xfe", "\u20ac\uff0e\u0661".encode(), b"public/run",
    b"x" * 300, b" q ", b"resp_a HTTP/1.1\r\nx-evil: 1\r\n", b"*", b"{weft}:totals",
]  # fmt: skip
ids = st.one_of(
    st.sampled_from(KNOWN),
    st.binary(max_size=12),
    st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass")),
)

ROUTES: list[tuple[bytes, bytes]] = [
    (b"POST", b"/v1/chat/completions"),
    (b"POST", b"/v1/completions"),
    (b"POST", b"/v1/responses"),
    (b"POST", b"/v1/messages"),
    (b"POST", b"/v1/embeddings"),
    (b"POST", b"/p/%b/v1/chat/completions"),
    (b"POST", b"/p/%b/v1/responses"),
    (b"POST", b"/p/%b/%b"),
    (b"GET", b"/v1/responses/%b"),
    (b"GET", b"/v1/responses/resp_%b"),
    (b"GET", b"/p/run/v1/responses/resp_%b"),
    (b"DELETE", b"/v1/responses/resp_%b"),
    (b"POST", b"/v1/responses/resp_%b/cancel"),
    (b"GET", b"/v1/responses/resp_%b/input_items"),
    (b"POST", b"/v1/messages/count_tokens"),
    (b"POST", b"/tokenize"),
    (b"POST", b"/detokenize"),
    (b"GET", b"/v1/sessions/%b"),
    (b"GET", b"/v1/sessions/%b/story"),
    (b"DELETE", b"/v1/sessions/%b"),
    (b"GET", b"/v1/sessions?after=%b"),
    (b"POST", b"/v1/sessions"),
    (b"POST", b"/finish_session?session_id=%b"),
    (b"GET", b"/v1/receipts/%b"),
    (b"GET", b"/v1/hints/prefill/%b"),
    (b"POST", b"/v1/hints/prefill/%b/extend"),
    (b"POST", b"/v1/hints/tags"),
    (b"GET", b"/%b"),
    (b"PUT", b"/v1/%b"),
    (b"GET", b"http://elsewhere/v1/responses/resp_%b"),
    (b"POST", b"http://elsewhere:1/v1/chat/completions"),
    (b"OPTIONS", b"*"),
    (b"TRACE", b"/v1/chat/completions"),
]
# The first routes reach an engine most often.
WEIGHTS = [6, 3, 6, 4, 2, 3, 3] + [1] * (len(ROUTES) - 7)


def escaped(raw: bytes) -> bytes:
    return quote_from_bytes(raw, safe="").encode()


def percent_encoded(raw: bytes) -> bytes:
    return b"".join(b"%%%02X" % byte for byte in raw)


def twice(raw: bytes) -> bytes:
    return escaped(escaped(raw))


def with_slashes(raw: bytes) -> bytes:
    return quote_from_bytes(raw, safe="/.;=:@%").encode()


def unchanged(raw: bytes) -> bytes:
    return raw


ENCODINGS = [escaped, percent_encoded, twice, with_slashes]
TOKEN = b"abcdefghijklmnopqrstuvwxyz0123456789-_.!#$&'*+^`|~"
NAMES = [
    b"accept", b"accept-language", b"baggage", b"content-type", b"traceparent", b"tracestate",
    b"user-agent", b"x-vllm-priority", b"anthropic-version", b"openai-beta", b"X-VLLM-Any",
]  # fmt: skip
# These headers carry hidden values that no engine may receive.
CLOSED = [
    b"x-weft-call", b"x-weft-context", b"x-request-id", b"cookie", b"x-api-key", b"x-weft-secret",
    b"openai-organization", b"anthropic-auth-token", b"x-vllm-api-key", b"x-forwarded-for",
    b"x-data-parallel-rank", b"x-weft-report", b"proxy-authorization", b"forwarded", b"via",
]  # fmt: skip
NAMED = [b"x-session-id", b"x-weft-program", b"x-weft-thread", b"x-parent-session-id"]
# Header values that an HTTP parser accepts.
sound_values = st.binary(max_size=16).map(
    lambda raw: bytes(byte for byte in raw if byte == 9 or (byte >= 32 and byte != 127)).strip()
)
sound_headers = st.one_of(
    st.tuples(st.sampled_from(NAMES), sound_values),
    st.tuples(st.sampled_from(CLOSED), sound_values.map(lambda v: HIDDEN.encode() + v)),
    st.tuples(st.sampled_from(NAMED), sound_values),
    st.tuples(
        st.builds(
            bytes.__add__,
            st.sampled_from([b"x-vllm-", b"openai-", b"anthropic-", b"x-weft-", b"q"]),
            st.lists(st.sampled_from(list(TOKEN)), max_size=8).map(bytes),
        ),
        sound_values,
    ),
)
wild_headers = st.one_of(
    st.tuples(st.sampled_from(NAMES + CLOSED), st.binary(max_size=8)),
    st.tuples(st.binary(min_size=1, max_size=6), st.binary(max_size=6)),
    st.sampled_from(
        [
            (b"transfer-encoding", b"chunked"),
            (b"transfer-encoding", b"identity"),
            (b"content-length", b"0"),
            (b"content-length", b"+1"),
            (b"connection", b"close, x-vllm-priority"),
            (b"host", b"a\x00b"),
            (b"accept", b"a\nx-evil: 1"),
            (b"accept", b"a\r\n x-evil: 1"),
            (b"accept", b"a\rx-evil: 1"),
        ]
    ),
).map(lambda pair: (pair[0], pair[1].replace(b"\r\n\r\n", b"").replace(b"\n\n", b"")))
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-9, 9),
    st.text(max_size=6),
    st.just([]),
    st.just({"a": 1}),
)
queries = st.one_of(
    st.just(b""),
    st.just(b"?beta=true"),
    st.binary(max_size=8).map(lambda raw: b"?a=" + escaped(raw)),
)
members = st.one_of(
    st.tuples(st.just("request_id"), st.just(REQUEST)),
    st.tuples(st.just("cache_salt"), st.just(SALT)),
    st.tuples(
        st.just("previous_response_id"), st.one_of(values, st.just("resp_" + "0" * 31 + "1"))
    ),
    st.tuples(st.sampled_from(["session_id", "prompt_cache_key", "metadata", "weft"]), values),
    st.tuples(st.just("vllm_xargs"), st.just({"weft_call": HIDDEN, "agentic_context": {"a": 1}})),
    st.tuples(st.sampled_from(["input", "prompt", "messages", "model", "stream", "user"]), values),
)
bodies = st.one_of(
    st.dictionaries(st.text(max_size=3), values, max_size=2).map(json.dumps),
    st.lists(members, max_size=4).map(
        # A dict cannot hold duplicate members.
        lambda pairs: "{" + ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in pairs) + "}"
    ),
    st.lists(members, max_size=3).map(
        lambda pairs: json.dumps({"model": "tiny", "messages": [], **dict(pairs)})
    ),
).map(str.encode)


@st.composite
def batches(draw: Any) -> list[Case]:
    """Draw a batch of requests, mixed from a few drawn parts."""
    names = draw(st.lists(ids, min_size=4, max_size=8))
    sound = draw(st.lists(sound_headers, min_size=6, max_size=12))
    wild = draw(st.lists(wild_headers, min_size=2, max_size=4))
    asked = draw(st.lists(queries, min_size=2, max_size=4))
    sent = draw(st.lists(bodies, min_size=4, max_size=8))
    mix = Random(draw(st.integers(0, 1 << 32)))
    return [_case(mix, names, sound, wild, asked, sent) for _ in range(BATCH)]


def _case(
    mix: Random,
    names: list[bytes],
    sound: list[tuple[bytes, bytes]],
    wild: list[tuple[bytes, bytes]],
    asked: list[bytes],
    sent: list[bytes],
) -> Case:
    ((method, route),) = mix.choices(ROUTES, WEIGHTS)
    is_sound = mix.random() < 0.93
    encode = mix.choice(ENCODINGS if is_sound else [unchanged, *ENCODINGS])
    path = route
    while b"%b" in path:
        path = path.replace(b"%b", encode(mix.choice(names)).replace(b"%b", b"%25b"), 1)
    if b"?" not in path:
        path += mix.choice(asked) if is_sound else b"?a=" + mix.choice(names)
    if is_sound and not all(0x21 <= byte < 0x7F for byte in path):
        is_sound = False
    headers = [(b"host", b"x")]
    tenant = mix.choice(TENANTS)
    if tenant:
        headers.append((b"authorization", b"Bearer " + tenant))
    # Each name once: some may not be repeated.
    headers = [*dict([*headers, *mix.sample(sound, mix.randrange(4))]).items()]
    if not is_sound:
        headers += mix.sample(wild, mix.randrange(2))
    body = mix.choice(sent) if method == b"POST" else b""
    lines = b"".join(b"%b: %b\r\n" % pair for pair in headers)
    head = b"%b %b HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n" % (method, path, lines, len(body))
    return Case(head + body, is_sound)


@settings(
    max_examples=max(1, CASES // BATCH),
    deadline=None,
    database=None,
    # A failing batch names its request. Shrinking takes longer than reading it.
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(batches())
def _attack(gateway: Gateway, cases: list[Case]) -> None:
    gateway.send(cases)
    for case in cases:
        assert case.status > 0 or not case.sound, case.raw
        # A transfer coding or a version of HTTP that the gateway does not know.
        assert case.status < 500 or case.status in (501, 505), (case.status, case.raw)
    assert gateway.recorder.wrong == []


def test_engines_receive_only_allowed_input_of_clients(
    gateway: Gateway,
) -> None:
    _attack(gateway)
    summary = f"{dict(gateway.statuses)}, {dict(gateway.recorder.served)}"
    print(summary)
    sent = sum(gateway.statuses.values())
    assert sent >= CASES // BATCH * BATCH
    # Engines received both kinds of request, and the gateway refused some.
    assert gateway.recorder.served["call"] > sent / 20, summary
    assert gateway.recorder.served["other"] > 0, summary
    assert gateway.statuses[400] > 0, summary
    assert gateway.statuses[404] > 0, summary
