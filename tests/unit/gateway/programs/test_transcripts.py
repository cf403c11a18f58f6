"""The store of transcripts: which ones are found, replaced, and evicted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from weft_gateway.api.body import Body, call_body
from weft_gateway.calls.turns import Turns
from weft_gateway.model import ProgramKey
from weft_gateway.programs.transcripts import Transcripts
from weft_gateway.transcripts.reading import Reading, marks_of

ONE, TWO = ProgramKey("tenant", "one"), ProgramKey("tenant", "two")


def body(count: int, name: str = "x", marked: bool = False) -> bytes:
    """Return a body with `count` messages of a kilobyte behind a system prompt."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "brief"}]
    texts = [f"{name} {number} " + "word " * 200 for number in range(count)]
    messages += [{"role": "user", "content": text} for text in texts]
    if marked:
        messages[-1]["cache_control"] = {"type": "ephemeral"}
    return json.dumps({"messages": messages, "model": "m"}).encode()


def read_body(store: Transcripts, raw: bytes) -> Body:
    return asyncio.run(call_body(raw, 1 << 22, 8192, Turns(), "tenant", store))


def read(store: Transcripts, raw: bytes) -> Reading:
    reading = read_body(store, raw).reading
    assert reading is not None
    return reading


def keep(store: Transcripts, key: ProgramKey, reading: Reading) -> None:
    last = reading.first + (0 if reading.known is None else reading.known.count)
    counts = {last + n: (n, float(n), 3) for n in range(len(reading.ends))}
    messages = json.loads(reading.fresh)["messages"]
    if reading.known is not None:
        messages[reading.first] = reading.known
    marks = marks_of({"messages": messages}, reading.known)
    transcript = reading.transcript(key, messages, (7, 0.0), counts, marks)
    assert transcript is not None
    store.keep(reading, transcript)


def call(store: Transcripts, key: ProgramKey, raw: bytes) -> int:
    """Read and keep a body. Returns the number of known messages."""
    reading = read(store, raw)
    keep(store, key, reading)
    return 0 if reading.known is None else reading.known.count


def test_the_next_body_knows_the_messages_of_the_last_one() -> None:
    store = Transcripts(1 << 20)
    assert [call(store, ONE, body(count)) for count in (30, 32, 34, 34)] == [0, 30, 32, 33]
    assert len(store) == 1


def test_a_mark_that_moves_replaces_the_end() -> None:
    store = Transcripts(1 << 20)
    assert [call(store, ONE, body(count, marked=True)) for count in (30, 32, 34)] == [0, 29, 31]
    assert len(store) == 1


def test_a_branch_does_not_end_the_thread_that_it_leaves() -> None:
    store = Transcripts(1 << 20)
    call(store, ONE, body(60))
    branch = json.loads(body(40))
    branch["messages"] += [{"role": "user", "content": "another " + "word " * 300}] * 2
    assert call(store, ONE, json.dumps(branch).encode()) == 40
    branch["messages"] += [{"role": "user", "content": "way"}]
    assert call(store, ONE, json.dumps(branch).encode()) == 42
    assert call(store, ONE, body(62)) == 60
    assert len(store) == 2


def test_calls_in_flight_do_not_change_what_others_know() -> None:
    store = Transcripts(1 << 20)
    call(store, ONE, body(30))
    first, second = read(store, body(32)), read(store, body(32, marked=True))
    keep(store, ONE, first)
    keep(store, ONE, second)
    assert first.known is not None
    assert [message["content"][:4] for message in first.known.messages()] == [
        f"x {number} "[:4] for number in range(30)
    ]
    assert call(store, ONE, body(34)) == 31


def test_programs_with_one_beginning_are_kept_apart() -> None:
    store = Transcripts(1 << 20)
    assert call(store, ONE, body(30)) == 0
    assert call(store, TWO, body(30)) == 29
    assert len(store) == 2
    store.forget(TWO)
    assert call(store, ONE, body(32)) == 30
    store.forget(ONE)
    assert (len(store), store.total) == (0, 0)
    assert call(store, ONE, body(32)) == 0


def test_the_oldest_transcripts_go_when_there_is_no_room() -> None:
    store = Transcripts(20_000)
    for number in range(12):
        call(store, ProgramKey("tenant", str(number)), body(30, f"text {number}"))
    assert 2 <= len(store) < 12
    assert store.total <= 20_000
    assert call(store, ProgramKey("tenant", "11"), body(32, "text 11")) == 30
    assert call(store, ProgramKey("tenant", "0"), body(32, "text 0")) == 0


def test_what_is_kept_is_limited_by_the_cost_of_reading_it_and_in_memory() -> None:
    store = Transcripts(1 << 22)
    parts = [{"type": "text", "text": "x"}] * 4000
    mark = {"type": "ephemeral", "ttl": ["x" * 200] * 1000}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "x", "cache_control": mark}]
    known = 0
    for _ in range(9):
        messages.append({"role": "user", "content": parts})
        raw = json.dumps({"messages": messages}).encode()
        if (found := read_body(store, raw).reading) is None:
            break
        known = 0 if found.known is None else found.known.count
        keep(store, ONE, found)
    assert known == 3, "messages and parts of two readings"
    assert store.find("tenant", raw)[1] is not None
    (kept,) = store._digests
    assert [one.value for one in kept.marks] == [{"type": "ephemeral", "ttl": ""}]


def test_a_member_with_a_long_name_is_no_place_to_look_for_messages() -> None:
    raw = b'{"%b":1,%b' % (b"\\n" * 20_000, body(30)[1:])
    assert read_body(Transcripts(1 << 20), raw).reading is None
