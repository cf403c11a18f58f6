"""Sends programs to the gateway's lineage, in virtual time. Calls that name their program do not
reach it.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from time import thread_time
from typing import Any, Final

import orjson
from weft_gateway.programs.identity import resolve
from weft_gateway.programs.lineage.memory import MemoryLineage
from weft_gateway.programs.lineage.rules import Asked
from weft_gateway.programs.lineage.tracker import Lineage
from weft_gateway.programs.response_store import ResponseStore

from weft_bench.micro.lineage.data import Calls, RecordedCall

_TENANT: Final = "bench"
# At equal times, ends come before starts.
_END, _ASK = 0, 1
# Number of messages of a long conversation.
LENGTH: Final = 301


@dataclass(frozen=True, slots=True)
class Played:
    """The result of one set. Labels are (true program, found program) per call.

    at_once: as found when the call came. with_text: the same, for calls whose prompt has text.
    in_the_end: as known after the last call. ask_s: seconds of processor time of the lookup and
    record before a call. answer_s: the same for its answer.
    """

    at_once: Sequence[tuple[int, str]]
    in_the_end: Sequence[tuple[int, str]]
    with_text: Sequence[tuple[int, str]]
    ask_s: Sequence[float]
    answer_s: Sequence[float]
    fingerprints: int
    held_bytes: int


async def play(programs: Sequence[Calls], weigh: bool = False) -> Played:
    """Play programs interleaved in time. weigh: measure memory, which slows everything down."""
    events = sorted(
        (time, kind, program, number)
        for program, calls in enumerate(programs)
        for number, call in enumerate(calls)
        for time, kind in ((call.at_s, _ASK), (call.at_s + call.took_s, _END))
    )
    if weigh:
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
    store = MemoryLineage()
    lineage, chains = Lineage(store), ResponseStore()
    asked: dict[tuple[int, int], Asked] = {}
    found: dict[tuple[int, int], tuple[str, str]] = {}
    ask_s, answer_s = [], []
    gc.disable()
    for time, kind, program, number in events:
        call = programs[program][number]
        if kind == _ASK:
            body = orjson.loads(call.body)
            named = resolve(
                tenant=_TENANT, headers=call.headers, body=body, path_program=None, chains=chains
            )
            if named.source != "none":
                found[program, number] = named.key.program, named.key.program
                continue
            begun = thread_time()
            fresh = f"p{len(found)}"
            placed = await lineage.ask(_TENANT, body, fresh, time)
            ask_s.append(thread_time() - begun)
            asked[program, number] = placed
            own = placed.verdict
            found[program, number] = own.program, own.owner
        elif (program, number) in asked:
            begun = thread_time()
            await _end(lineage, asked.pop((program, number)), call, time)
            answer_s.append(thread_time() - begun)
    gc.enable()
    held = 0
    if weigh:
        gc.collect()
        names = sum(len(text) + 50 for pair in found.values() for text in pair)
        held = tracemalloc.get_traced_memory()[0] - before - names
        tracemalloc.stop()
    last = {at: store.root(_TENANT, owner) for at, (_, owner) in found.items()}
    return Played(
        at_once=[(at[0], program) for at, (program, _) in found.items()],
        in_the_end=[(at[0], program) for at, program in last.items()],
        with_text=[(at[0], program) for at, (program, _) in found.items() if _says(programs, at)],
        ask_s=ask_s,
        answer_s=answer_s,
        fingerprints=store.held,
        held_bytes=held,
    )


async def _end(lineage: Lineage, asked: Asked, call: RecordedCall, now_s: float) -> None:
    if call.answer is not None:
        await lineage.answered(asked, orjson.loads(call.answer), now_s)
    elif call.broken:
        await lineage.failed(asked, now_s)


def _says(programs: Sequence[Calls], at: tuple[int, int]) -> bool:
    body: dict[str, Any] = orjson.loads(programs[at[0]][at[1]].body)
    return bool(body.get("messages") or str(body.get("prompt", "")).strip())


async def costs(rounds: int, rng: Random) -> dict[str, list[float]]:
    """Return seconds of processor time of `Lineage.ask` for known and new prefixes.

    Calls have LENGTH messages, one long text, or one short message.
    """
    found: dict[str, list[float]] = {}
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 9))) for _ in range(2000)]

    def text(size: int) -> str:
        made = rng.choices(words, k=size // 6)
        return " ".join([w + ".\n" if rng.random() < 0.08 else w for w in made])

    for round_ in range(rounds):
        turns: list[dict[str, Any]] = [{"role": "system", "content": text(4000)}]
        for number in range((LENGTH - 1) // 2):
            query = {"query": text(60), "limit": number}
            function = {"name": "search", "arguments": orjson.dumps(query).decode()}
            turns += [
                {"role": "assistant", "content": None, "tool_calls": [{"function": function}]},
                {"role": "tool", "tool_call_id": f"call{number}", "content": text(400)},
            ]
        more = [{"role": "assistant", "content": text(300)}, {"role": "user", "content": text(300)}]
        transcript = text(100_000)
        for what, first, then in (
            (f"{LENGTH} messages", {"messages": turns}, {"messages": turns + more}),
            ("prompt of 100 KB", {"prompt": transcript}, {"prompt": transcript + text(1000)}),
            ("one short message", {"messages": turns[-1:]}, {"messages": turns[-1:] + more}),
        ):
            lineage = Lineage(MemoryLineage())
            for kind, body in (("unknown", first), ("goes on", then)):
                parsed = orjson.loads(orjson.dumps({"model": "m", **body}))
                begun = thread_time()
                await lineage.ask(_TENANT, parsed, f"{kind}{round_}", float(round_))
                found.setdefault(f"{what}, {kind}", []).append(thread_time() - begun)
    return found
