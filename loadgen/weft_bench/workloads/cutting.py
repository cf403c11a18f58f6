"""Cuts programs to a model's context."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from weft_bench.workloads.schema import TraceCall, TraceError, TraceProgram

# Leaves room for the chat template and for estimates that are slightly too low.
_SAFETY: Final = 0.93


@dataclass(frozen=True, slots=True)
class ReadyCall:
    """A call with its lengths in the model's tokens.

    `prompt_tokens` is an estimate for messages.
    """

    call: TraceCall
    prompt_tokens: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class ReadyProgram:
    """A program that fits the context.

    cut: calls beyond the context are left out. trimmed: the first message is shortened. arrival_s:
    as recorded.
    """

    id: str
    calls: tuple[ReadyCall, ...]
    cut: bool
    trimmed: bool
    arrival_s: float | None = None


def message_bytes(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return the size in bytes of the messages in the chat template's output."""
    return sum(
        len(str(m.get("content") or "").encode())
        + (len(json.dumps(m["tool_calls"])) if m.get("tool_calls") else 0)
        + 24
        for m in messages
    )


# A few thousand bytes are enough to estimate the ratio, and fit any context.
_SAMPLE: Final = 4000


async def bytes_per_token(
    messages: Sequence[Mapping[str, Any]], count: Callable[[Sequence[Any]], Awaitable[float]]
) -> float:
    """Return the bytes per token of these messages.

    count: returns the engine's number of prompt tokens of messages. The first message, often prose,
    and the rest, often JSON of tools, are measured separately. The lower ratio counts, or 4 without
    any text.
    """
    ratios = []
    for part in (messages[:1], messages[1:]):
        text = "\n".join(str(message.get("content") or "") for message in part)[:_SAMPLE]
        if text:
            probe = [{"role": "user", "content": text}]
            ratios.append(message_bytes(probe) / await count(probe))
    return min(ratios, default=4.0)


def fit(
    program: TraceProgram, context: int, bytes_per_token: float, output_scale: float = 1.0
) -> ReadyProgram | None:
    """Return the program without the calls that exceed the context, in tokens, or None.

    A program whose context outgrows the model's goes on where the record has a shorter prompt: its
    own compaction. If the first message alone does not fit, it is shortened to half the context.
    Raises TraceError for a call without a prompt, which no engine accepts.
    """
    room = int(context * _SAFETY)
    trimmed = False
    calls: list[ReadyCall] = []
    first_length = 0
    # By the number of a recorded call: its place among the calls that fit, or what it waits for.
    places: list[tuple[int, ...]] = []
    for number, call in enumerate(program.calls):
        if number == 0 and call.messages and _tokens(call, bytes_per_token) > room * 3 // 4:
            first_length = max(64, int(room * bytes_per_token / 2))
            # The tools may be the long part. They are never shortened.
            trimmed = len(str(call.messages[0].get("content")).encode()) > first_length
        if trimmed:
            head = dict(call.messages[0])
            head["content"] = str(head["content"]).encode()[:first_length].decode("utf-8", "ignore")
            call = replace(call, messages=(head, *call.messages[1:]))
        prompt = _tokens(call, bytes_per_token)
        if not prompt:
            raise TraceError(f"call {number} of {program.id} has no prompt")
        output = call.output_tokens or round(call.output_bytes / bytes_per_token)
        output = max(1, round(output * output_scale))
        needs = tuple(sorted({place for needed in call.needs(number) for place in places[needed]}))
        if prompt + output > room:
            places.append(needs)
            continue
        places.append((len(calls),))
        if needs != call.needs(len(calls)):
            call = replace(call, after=needs)
        calls.append(ReadyCall(call, prompt, output))
    if not calls:
        return None
    cut = len(calls) < len(program.calls)
    return ReadyProgram(program.id, tuple(calls), cut, trimmed, program.arrival_s)


def fitting(
    programs: Iterable[TraceProgram],
    context: int,
    bytes_per_token: float,
    output_scale: float = 1.0,
) -> Iterator[ReadyProgram]:
    """Yield the programs that `fit`; a program of which no call fits is left out."""
    for program in programs:
        ready = fit(program, context, bytes_per_token, output_scale)
        if ready is not None:
            yield ready


def _tokens(call: TraceCall, bytes_per_token: float) -> int:
    if call.parts:
        return sum(part.tokens for part in call.parts)
    # The chat template prints the tools too.
    tools = len(json.dumps(call.tools)) if call.tools else 0
    return round((tools + message_bytes(call.messages)) / bytes_per_token)
