"""Random edits of growing bodies: reading them beside transcripts gives what reading them whole
gives, and an edited history is never taken for a known one.
"""

from __future__ import annotations

import asyncio
import json
from random import Random
from time import perf_counter
from typing import Any

import pytest
from support.edited_sessions import EDITS, PATHS, Client
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
from weft_gateway.policies.goals import begins_turn
from weft_gateway.policies.hints import read_hints
from weft_gateway.policies.route import registry as routers
from weft_gateway.policies.tags import end_of, wire_tags
from weft_gateway.programs.identity import Identity
from weft_gateway.programs.lineage.fingerprint import Fingerprint, Stale
from weft_gateway.programs.lineage.first_turns import is_first_turn
from weft_gateway.programs.lineage.tool_ids import asked_ids
from weft_gateway.programs.transcripts import Transcripts
from weft_gateway.transcripts import grid
from weft_gateway.transcripts.outline import outline
from weft_gateway.transcripts.transcript import expanded

CONTEXT = CallContext("call-000000000000-1", "p", 1.0, 0.0, 1.0, 1.0)


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
                assert call.body[known.of.name][-1] is not known, "the last message is read"
            check(call, expected.members, raw, counter, named=random.random() < 0.3)
            observer.ended(call)
            earlier.append(raw)
        else:
            assert given == expected
        raw = random.choice(EDITS)(client, raw)
        if random.random() < 0.5 and not isinstance(read(raw), Body):
            raw = client.body()
    assert found > 5 or client.named, "bodies with names of media are read whole"


def check(call: Call, expected: Any, raw: bytes, counter: PromptCounter, named: bool) -> None:
    """Compare what a call's features read with what they read in the whole body. named: the call
    names its program, so lineage does not read it.
    """
    whole = Call(call.id, call.endpoint, [], b"", call.begun, Hooks())
    whole.caller, whole.model, whole.raw, whole.body = call.caller, call.model, raw, expected
    for each in (asked_ids, begins_turn, is_first_turn):
        assert each(call.body) == each(expected)
    made = [outline(raw, one.body, one.reading, "m", 0) for one in (call, whole)]
    own, other = [one and (one.stops, one.digests) for one in made]
    assert own == other
    if not named:
        check_lineage(call, expected)
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


def check_lineage(call: Call, expected: Any) -> None:
    """Compare what lineage reads with what it reads in the whole body."""
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
