"""Statistics of a workload. Pure.

Four characters of text count as one token. Units: calls and fan-outs are counts, lengths are
tokens, times are seconds, shares are between 0 and 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from typing import Any, Final

from weft_bench.stats import mean, percentile
from weft_bench.workloads.schema import TraceCall, TraceProgram

_CHARACTERS_A_TOKEN: Final = 4
# Ids are compared in blocks of this length, as an engine caches them.

# A prompt as pieces of (content, length). If two pieces have one content, the shorter is a prefix
# of the longer.
Pieces = list[tuple[object, float]]


def statistics(programs: Iterable[TraceProgram]) -> dict[str, float]:
    """Return the statistics by name, without those that the workload has no data for.

    new prompt: tokens that a prompt adds to the prompts and answers of the calls that it waits for.
    kept: over calls that wait for others, the share of prompt tokens that those calls held. cached:
    share of all prompt tokens that an infinite cache would hold, with programs in sequence.
    fan-out: number of tools that an answer requests.
    """
    calls: list[int] = []
    prompts: list[float] = []
    fresh: list[float] = []
    outputs: list[float] = []
    gaps: list[float] = []
    tools: list[float] = []
    fans: list[float] = []
    arrivals: list[float] = []
    cache = _Cache()
    widest = 0
    kept = following = 0.0
    for program in programs:
        if program.arrival_s is not None:
            arrivals.append(program.arrival_s)
        calls.append(len(program.calls))
        widest = max(widest, _width(program.calls))
        held: list[Pieces] = []
        for number, call in enumerate(program.calls):
            pieces = pieces_of(call)
            length = sum(tokens for _, tokens in pieces)
            before = max((_common(held[n], pieces) for n in call.needs(number)), default=0.0)
            output = call.output_tokens or call.output_bytes / _CHARACTERS_A_TOKEN
            held.append([*pieces, (call.answer, output)] if call.answer else pieces)
            cache.ask(pieces)
            prompts.append(length)
            fresh.append(length - before)
            if call.needs(number):
                kept += before
                following += length
            outputs.append(output)
            gaps.append(call.gap_s)
            tools += call.tool_s
            if call.tool_s:
                fans.append(len(call.tool_s))
    found = {"programs": float(len(calls)), **_of("calls", calls, p95=True)}
    found["calls at once"] = float(widest)
    found |= {**_of("prompt", prompts), "new prompt mean": mean(fresh), **_of("output", outputs)}
    if following:
        found["kept"] = kept / following
    found["cached"] = cache.hits / (sum(prompts) or 1.0)
    if any(gaps):
        found["gap mean"] = mean(gaps)
    if tools:
        middle = mean(tools)
        found |= {"tool mean": middle, "tool variance": mean([(t - middle) ** 2 for t in tools])}
        found |= {
            "fan-out mean": mean(fans),
            "fan-out p50": percentile(fans, 0.5),
            "fan-out max": max(fans),
        }
    if len(arrivals) > 2:
        found |= arrival_figures(arrivals)
    return found


def arrival_figures(arrivals: Sequence[float]) -> dict[str, float]:
    """Return the rate per second and the coefficient of variation of the times between arrivals."""
    between = [after - before for before, after in pairwise(sorted(arrivals))]
    middle = mean(between)
    if not middle:
        return {}
    spread = sqrt(mean([(gap - middle) ** 2 for gap in between]))
    return {"arrivals per s": 1 / middle, "arrivals CV": spread / middle}


def pieces_of(call: TraceCall) -> Pieces:
    """Return the prompt as pieces, from either of its forms."""
    if call.parts:
        return [(part.name, part.tokens) for part in call.parts]
    # Templates print the tools before the conversation.
    tools = [(tool, len(tool) / _CHARACTERS_A_TOKEN) for tool in map(json.dumps, call.tools)]
    return [*tools, *(_message(message) for message in call.messages)]


def _message(message: Mapping[str, Any]) -> tuple[object, float]:
    calls = message.get("tool_calls")
    content = str(message.get("content") or "") + (json.dumps(calls) if calls else "")
    return (message.get("role"), content), len(content) / _CHARACTERS_A_TOKEN


def _common(held: Pieces, asked: Pieces) -> float:
    """Return the length in tokens of the common prefix."""
    found = 0.0
    for (mine, had), (theirs, wanted) in zip(held, asked, strict=False):
        if mine != theirs:
            break
        found += min(had, wanted)
        if had != wanted:
            break
    return found


def _width(calls: Sequence[TraceCall]) -> int:
    """Return the largest number of calls at one depth of the program.

    They run at the same time if all calls take equally long.
    """
    depths: list[int] = []
    for number, call in enumerate(calls):
        depths.append(1 + max((depths[n] for n in call.needs(number)), default=-1))
    return max((depths.count(depth) for depth in set(depths)), default=0)


def _of(name: str, values: Sequence[float], p95: bool = False) -> dict[str, float]:
    found = {f"{name} mean": mean(values), f"{name} p50": percentile(values, 0.5)}
    if p95:
        found[f"{name} p95"] = percentile(values, 0.95)
    found[f"{name} max"] = max(values, default=0.0)
    return found


class _Cache:
    """A prefix tree of earlier prompts that measures how much of the next one it holds."""

    def __init__(self) -> None:
        # By the node before them: the longest beginning of a piece, and the node of each one.
        self._longest: dict[tuple[int, object], float] = {}
        self._nodes: dict[tuple[int, object, float], int] = {}
        self.hits = 0.0

    def ask(self, pieces: Pieces) -> None:
        """Count the cached tokens of a prompt, then store it."""
        node, known = 0, True
        for content, tokens in pieces:
            at = (node, content)
            had = self._longest.get(at, 0.0)
            if known:
                self.hits += min(had, tokens)
            self._longest[at] = max(had, tokens)
            # What follows a shorter beginning of a piece does not follow the whole piece.
            count = len(self._nodes)
            node = self._nodes.setdefault((*at, tokens), count + 1)
            known = known and node <= count
