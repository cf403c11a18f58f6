"""Random edits of growing bodies: reading them beside transcripts gives what reading them whole
gives, and an edited history is never taken for a known one.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from random import Random
from time import perf_counter
from typing import Any

import pytest
from weft_engine.wire import CallContext
from weft_gateway.api import body
from weft_gateway.api.body import Body, call_body
from weft_gateway.calls.call import Call, Caller, Hooks
from weft_gateway.calls.features.transcripts import TranscriptObserver
from weft_gateway.calls.placement import PromptCounter
from weft_gateway.calls.turns import Turns
from weft_gateway.engine.endpoints import BY_PATH
from weft_gateway.engine.engine_request import ReplicaKind, TooDeep, build_engine_request
from weft_gateway.engine.tokens import TokenCounter
from weft_gateway.errors import ApiError
from weft_gateway.model import ProgramKey
from weft_gateway.policies.hints import read_hints
from weft_gateway.policies.route import registry as routers
from weft_gateway.policies.tags import end_of, wire_tags
from weft_gateway.programs.identity import Identity
from weft_gateway.programs.lineage.fingerprint import Fingerprint, Stale
from weft_gateway.programs.transcripts import Transcripts
from weft_gateway.transcripts import grid
from weft_gateway.transcripts.transcript import expanded

PATHS = {
    "chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses",
}  # fmt: skip
TEXTS = (
    "plain words, and a {brace] or two", 'a "quoted" word\\', "line\nline\ttab", "ünïcödé ✓ 漢字",
    "\x1b[31mred\x1b[0m", "<|im_end|>", "", " ", "]}", '"uuid": "x"', "x" * 700,
)  # fmt: skip
CONTEXT = CallContext("call-000000000000-1", "p", 1.0, 0.0, 1.0, 1.0)


@dataclass
class Client:
    """An agent whose body grows, in one API and one style of JSON."""

    random: Random
    api: str
    messages: list[Any] = field(default_factory=list)
    others: dict[str, Any] = field(default_factory=dict)
    first: bool = True
    named: bool = False

    def __post_init__(self) -> None:
        random = self.random
        self.style: dict[str, Any] = {
            "ensure_ascii": random.random() < 0.5,
            "separators": random.choice([(",", ":"), (", ", ": ")]),
            "indent": random.choice([None, None, 1]),
        }
        self.first = random.random() < 0.5
        tools = [{"type": "function", "function": {"name": "f", "description": self.text()}}]
        self.others = {"model": "m", "max_tokens": 5, "tools": tools}
        if self.api == "messages":
            self.others["system"] = [{"type": "text", "text": self.text()}]
        elif self.api == "responses":
            self.others["instructions"] = self.text()
        elif random.random() < 0.8:
            self.messages.append({"role": "system", "content": self.text() * 9})
        for _ in range(random.randrange(6, 14)):
            self.turn()

    def text(self) -> str:
        return " ".join(self.random.choice(TEXTS) for _ in range(self.random.randrange(1, 9)))

    def turn(self) -> None:
        """Add an answer and what follows it."""
        text, name = self.text(), f"call_{self.random.getrandbits(64):016x}"
        arguments = json.dumps({"text": self.text()})
        if self.api == "messages":
            used = {"type": "tool_use", "id": name, "name": "f", "input": {"text": self.text()}}
            said = [{"type": "text", "text": text or "x"}, used]
            result: list[Any] = [
                {"type": "tool_result", "tool_use_id": name, "content": self.text()}
            ]
            if self.random.random() < 0.3:
                result.append({"type": "text", "text": self.text()})
            self.messages += [
                {"role": "user", "content": self.text()},
                {"role": "assistant", "content": said},
                {"role": "user", "content": result},
            ]
        elif self.api == "responses":
            self.messages += [
                {"role": "user", "content": [{"type": "input_text", "text": text}]},
                {"type": "function_call", "call_id": name, "name": "f", "arguments": arguments},
                {"type": "function_call_output", "call_id": name, "output": self.text()},
            ]
        else:
            called = {"id": name, "type": "function"}
            called["function"] = {"name": "f", "arguments": arguments}
            self.messages += [
                {"role": "user", "content": text},
                {"role": "assistant", "content": None, "tool_calls": [called]},
                {"role": "tool", "tool_call_id": name, "content": self.text()},
            ]

    def body(self) -> bytes:
        """Return the body, with the list of messages first or last."""
        content = {"input" if self.api == "responses" else "messages": self.messages}
        whole = {**content, **self.others} if self.first else {**self.others, **content}
        return json.dumps(whole, **self.style).encode()


def one_byte(client: Client, raw: bytes) -> bytes:
    at = client.random.randrange(len(raw))
    return raw[:at] + bytes([client.random.randrange(32, 127)]) + raw[at + 1 :]


def inserted(client: Client, raw: bytes) -> bytes:
    at = client.random.randrange(len(raw))
    return raw[:at] + client.random.choice([b" ", b"\n", b"a", b"\\u0041", b'"', b","]) + raw[at:]


def duplicate(client: Client, raw: bytes) -> bytes:
    twice = client.random.choice(
        [b'"model":"m",', b'"messages":[],', b'"input":[],', b'"weft":{},']
    )
    return (
        b"{" + twice + raw[1:]
        if client.random.random() < 0.5
        else raw[:-1] + b"," + twice[:-1] + b"}"
    )


def tools(client: Client, raw: bytes) -> bytes:
    client.others["tools"][0]["function"]["description"] += "."
    return client.body()


def removed(client: Client, raw: bytes) -> bytes:
    if len(client.messages) > 4:
        del client.messages[client.random.randrange(1, len(client.messages))]
    return client.body()


def compacted(client: Client, raw: bytes) -> bytes:
    client.messages[1:-3] = [{"role": "user", "content": "Summary: " + client.text()}]
    for _ in range(9):
        client.turn()
    return client.body()


def reordered(client: Client, raw: bytes) -> bytes:
    at = client.random.randrange(len(client.messages))
    if isinstance(client.messages[at], dict):
        client.messages[at] = dict(reversed(client.messages[at].items()))
    client.others = dict(reversed(client.others.items()))
    return client.body()


def trailing(client: Client, raw: bytes) -> bytes:
    name = client.random.choice(["weft", "session_id", "priority", "vllm_xargs", "cache_salt", "n"])
    client.others[name] = {
        "weft": {"priority": 1}, "session_id": "s", "priority": 3, "vllm_xargs": {"a": 1},
        "cache_salt": "salt", "n": 2,
    }[name]  # fmt: skip
    return client.body()


def marked(client: Client, raw: bytes) -> bytes:
    for message in client.messages[-3:]:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list) and content:
            content[-1]["cache_control"] = {"type": "ephemeral"}
    return client.body()


def named(client: Client, raw: bytes) -> bytes:
    client.named = True
    part = {"type": "image_url", "image_url": {"url": "data:x"}, "uuid": "picture"}
    client.messages.append({"role": "user", "content": [part]})
    return client.body()


def odd(client: Client, raw: bytes) -> bytes:
    client.messages.append(client.random.choice([None, 7, "text", [], {}]))
    return client.body()


def retried(client: Client, raw: bytes) -> bytes:
    return raw


def grown(client: Client, raw: bytes) -> bytes:
    client.turn()
    return client.body()


EDITS = (
    *[grown] * 10, one_byte, one_byte, inserted, inserted, duplicate, tools, removed, compacted,
    reordered, trailing, marked, named, odd, retried,
)  # fmt: skip


def read(raw: bytes, store: Transcripts | None = None) -> Body | tuple[str, str]:
    """Return the body as it is read, or its error."""
    try:
        return asyncio.run(call_body(raw, 1 << 22, 8192, Turns(), "t", store))
    except ApiError as error:
        return error.code, error.message


def sent(call: Call, kind: ReplicaKind = ReplicaKind.WEFT) -> bytes:
    """Return the body for the engine."""
    pieces, _ = build_engine_request(
        call.raw, call.body, call.endpoint, kind, CONTEXT, "salt", call.reading
    )
    return b"".join(pieces)


@pytest.fixture(autouse=True)
def _short_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let short bodies be compared, at many positions."""
    positions = tuple(256 * 9**step // 8**step for step in range(64))
    monkeypatch.setattr(grid, "_POSITIONS", positions)
    monkeypatch.setattr(grid, "LEAST_BYTES", 512)
    monkeypatch.setattr(body, "LIGHT_BYTES", 256)


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("seed", range(8))
def test_edited_bodies_are_read_like_whole_ones(api: str, seed: int) -> None:
    random = Random(f"{api} {seed}")
    store, counter = (
        Transcripts(1 << 20),
        PromptCounter(TokenCounter(), routers.build("locality", 9)),
    )
    observer = TranscriptObserver(store, counter)
    client = Client(random, api)
    raw, earlier, found = client.body(), list[bytes](), 0
    for number in range(24):
        expected, given = read(raw), read(raw, store)
        if isinstance(given, Body):
            assert isinstance(expected, Body)
            call = Call(f"call-{number}", BY_PATH[PATHS[api]], [], b"", perf_counter(), Hooks())
            call.caller, call.replica, call.model = Caller("t", "salt"), "r", "m"
            call.raw, call.body, call.reading = given
            call.identity = Identity(ProgramKey("t", "p"), "main", "", "x-session-id", False)
            known = call.known
            if known is not None:
                found += 1
                reach = raw[: known.reach]
                assert any(one.startswith(reach) for one in earlier), "only what was sent is known"
            check(call, expected.members, raw, counter)
            observer.ended(call)
            earlier.append(raw)
        else:
            assert given == expected
        raw = random.choice(EDITS)(client, raw)
        if random.random() < 0.5 and not isinstance(read(raw), Body):
            raw = client.body()
    assert found > 5 or client.named, "bodies with names of media are read whole"


def check(call: Call, expected: Any, raw: bytes, counter: PromptCounter) -> None:
    """Compare what a call's features read with what they read in the whole body."""
    whole = Call(call.id, call.endpoint, [], b"", call.begun, Hooks())
    whole.caller, whole.model, whole.raw, whole.body = call.caller, call.model, raw, expected
    try:
        prompt = Fingerprint("t", call.body)
    except Stale:
        call.read_whole()
        prompt = Fingerprint("t", call.body)
    other = Fingerprint("t", expected)
    assert (prompt.points, prompt.turn, prompt.end()) == (other.points, other.turn, other.end())
    assert prompt.recent() == other.recent()
    assert prompt.older() == other.older()
    assert prompt.spoken() == other.spoken()
    if call.reading is not None:
        since = call.reading.first if call.known is None else call.known.last
        call.reading.start, call.reading.points = prompt.chain(call.reading.first, since)
        call.reading.pieces, call.reading.lines = prompt.own()
        assert {*other.own().pieces} <= {*prompt.own().pieces}, "they are no evidence"
    hints = read_hints(call.body, {}, call.text, call.known)
    assert hints == read_hints(expected, {}, raw)
    ends, ends_whole = counter.count(call).ends, counter.count(whole).ends
    tags, _ = wire_tags(call.sections, ends)
    wanted, _ = wire_tags(whole.sections, ends_whole)
    assert tags[1::2] == wanted[1::2]
    assert all(abs(a - b) <= 1 for a, b in zip(tags[::2], wanted[::2], strict=True))
    known = call.known
    for message in range(-1, len(whole.body.get("messages") or whole.body.get("input") or ())):
        if known is None or not known.first <= message < known.last:
            a, b = end_of(message, call.sections, ends), end_of(message, whole.sections, ends_whole)
            assert (a is None) == (b is None)
        else:
            b = end_of(message, whole.sections, ends_whole)
            assert b is None or abs(known.end_of(message) - b) <= 1
    try:
        engine_body = sent(whole)
    except TooDeep:
        with pytest.raises(TooDeep):
            sent(call)
        return
    assert json.loads(sent(call)) == json.loads(engine_body)
    if engine_body.endswith(raw[1:]):
        assert sent(call).endswith(raw[1:]), "the engine gets the client's bytes"
    for name in ("messages", "input"):
        if name in call.body and isinstance(call.body[name], list):
            assert [*expanded(call.body[name])] == expected[name]
