"""Recorded programs with the texts of their calls and answers, for `weft bench lineage`.

All programs of a set start within seconds of each other, whatever their recorded times. This is
harder than the recording.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from weft_bench.workloads.schema import TraceError
from weft_bench.workloads.streams import stream
from weft_bench.workloads.traces.tau import CUSTOMER_GAP_S, TOOL_GAP_S

FILES: Final = {
    "tau_airline": "tau_airline/trajectories.jsonl.xz",
    "miniswe": "agent_calls/miniswe.jsonl.xz",
    "magagent": "agent_calls/magagent.jsonl.xz",
}
_BEGIN_WITHIN_S: Final = 20.0
# The dialogues have no times. This is the mean time of an engine.
_ENGINE_S: Final = 2.0
_MODEL: Final = "recorded"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call.

    at_s, took_s: start and duration in seconds. body: the request's JSON body. answer: the answer's
    JSON body, or None. broken: the call failed; without it, an answer of None was not seen.
    headers: in ASGI form.
    """

    at_s: float
    took_s: float
    body: bytes
    answer: bytes | None
    broken: bool = False
    headers: tuple[tuple[bytes, bytes], ...] = ()


# One program: its calls in order of arrival.
Calls = list[RecordedCall]


def read(folder: Path, name: str, seed: int) -> list[Calls]:
    """Return the programs of one set. folder: contains the files of FILES. Raises TraceError."""
    file = folder / FILES[name]
    try:
        with lzma.open(file, "rt") as opened:
            records = [json.loads(line) for line in opened if line.strip()]
        rng = stream(seed, f"lineage/{name}")
        if name == "tau_airline":
            return [_dialogue(record["messages"], rng) for record in records]
        return list(_runs(records, rng))
    except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError) as error:
        raise TraceError(f"{file}: {error!r}") from None


def body_of(value: Mapping[str, Any]) -> bytes:
    """Return a body as JSON."""
    return json.dumps(value).encode()


def _dialogue(messages: list[Mapping[str, Any]], rng: Random) -> Calls:
    """Return one call per message of the assistant."""
    now, calls = rng.uniform(0, _BEGIN_WITHIN_S), []
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        took = rng.expovariate(1 / _ENGINE_S)
        body = body_of({"model": _MODEL, "messages": messages[:index]})
        calls.append(RecordedCall(now, took, body, body_of({"choices": [{"message": message}]})))
        after = messages[index + 1]["role"] if index + 1 < len(messages) else ""
        now += took + rng.expovariate(1 / (TOOL_GAP_S if after == "tool" else CUSTOMER_GAP_S))
    return calls


def _runs(records: list[Mapping[str, Any]], rng: Random) -> Iterator[Calls]:
    """Yield one program per session, with the recorded times between calls.

    The recording does not separate a call from the gap after it. A call takes most of this time.
    """
    by_session: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        by_session.setdefault(record["session_id"], []).append(record)
    for found in by_session.values():
        found.sort(key=lambda record: record["timestamp"])
        begin = rng.uniform(0, _BEGIN_WITHIN_S)
        times = [begin + (r["timestamp"] - found[0]["timestamp"]) / 1e6 for r in found]
        yield [
            RecordedCall(
                at,
                0.8 * (after - at),
                body_of({"model": _MODEL, "prompt": record["input"]}),
                body_of({"choices": [{"text": record["output"]}]}),
            )
            for record, at, after in zip(found, times, [*times[1:], times[-1] + 1], strict=True)
        ]
