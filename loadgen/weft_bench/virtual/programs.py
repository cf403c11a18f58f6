"""State of a program while it is played: progress and dependencies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from weft_bench.virtual.records import CallRecord
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram, message_bytes
from weft_bench.workloads.schema import Part

# Sizes and digests of messages by object identity; the messages must stay alive.
Seen = dict[int, tuple[int, str]]


def parts_of(call: ReadyCall, seen: Seen, bytes_per_token: float) -> tuple[Part, ...]:
    """Return a call's prompt as parts with `call.prompt_tokens` tokens in total.

    seen: kept over the calls of a program. bytes_per_token: the ratio that estimated the program's
    lengths. Messages are identified by their content.
    """
    trace = call.call
    return trace.parts or _of_messages(trace.messages, seen, bytes_per_token)


def _of_messages(
    messages: Sequence[Mapping[str, Any]], seen: Seen, bytes_per_token: float
) -> tuple[Part, ...]:
    for message in messages:
        if id(message) not in seen:
            text = json.dumps(message, sort_keys=True, default=str)
            digest = sha256(text.encode()).hexdigest()
            seen[id(message)] = (message_bytes([message]), digest)
    found = []
    passed = reach = 0
    for message in messages:
        size, digest = seen[id(message)]
        passed += size
        # The end of a message must depend only on the messages before it, because prompts share
        # prefixes.
        before, reach = reach, round(passed / bytes_per_token)
        if reach > before:
            found.append(Part(f"message/{digest}", reach - before, str(message.get("role", ""))))
    return tuple(found)


@dataclass(slots=True)
class Program:
    """A program that is being played.

    parts: each call's prompt. needs: the calls that each call still waits for. followers: the calls
    that wait for each call. due: the earliest known start of each call. records: those of calls
    that arrived. unanswered: number of calls without an answer. sent: calls that passed the
    gateway. came: when calls that a gate held arrived. remaining_s: of each call and those behind
    it.
    """

    ready: ReadyProgram
    arrival_s: float
    parts: list[tuple[Part, ...]]
    needs: list[set[int]]
    followers: list[list[int]]
    due: list[float]
    records: list[CallRecord] = field(default_factory=list)
    unanswered: int = 0
    sent: set[int] = field(default_factory=set)
    came: dict[int, float] = field(default_factory=dict)
    remaining_s: list[float] = field(default_factory=list)


def begin_program(
    ready: ReadyProgram,
    arrival_s: float,
    bytes_per_token: float,
) -> Program:
    """Return a program at its start.

    bytes_per_token: see `parts_of`.
    """
    needs = [set(call.call.needs(number)) for number, call in enumerate(ready.calls)]
    followers: list[list[int]] = [[] for _ in ready.calls]
    seen: Seen = {}
    for number, needed_by_call in enumerate(needs):
        for needed in needed_by_call:
            followers[needed].append(number)
    return Program(
        ready=ready,
        arrival_s=arrival_s,
        parts=[parts_of(call, seen, bytes_per_token) for call in ready.calls],
        needs=needs,
        followers=followers,
        due=[arrival_s] * len(ready.calls),
        unanswered=len(ready.calls),
    )
