"""`weft bench placing`: what a call costs the gateway that chooses its program's home."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from random import Random
from time import thread_time
from typing import Any, Final

import orjson
from rich.console import Console
from rich.table import Table
from weft_gateway.engine.prefixes import prefix_of
from weft_gateway.model import ReplicaView, RouteRequest
from weft_gateway.policies.route.prefixes import PrefixAffinityIndex
from weft_gateway.policies.route.registry import build

from weft_bench.report.figures import Figure, machine, write_json
from weft_bench.stats import percentile

# Bytes that programs share, and messages that they are in.
_PROMPTS: Final = ((4_096, 1), (36_000, 2), (150_000, 300))
_OWN_BYTES: Final = 400
_LOOPS: Final = 20


@dataclass(frozen=True, slots=True)
class PlacingOptions:
    """Options of the command; see `weft bench placing --help`."""

    replicas: int = 4
    rounds: int = 100
    json_file: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """One kind of prompt. read_s: seconds from the parsed body to its marks, a round each.
    choose_s: to look them up, weigh them against the load, and remember where the call went."""

    shared_bytes: int
    messages: int
    marks: int
    read_s: Sequence[float]
    choose_s: Sequence[float]


def run(options: PlacingOptions) -> int:
    """Measure and report. Returns the exit status."""
    placed = [
        measure(shared, messages, options.replicas, options.rounds) for shared, messages in _PROMPTS
    ]
    table = Table(
        title=f"a call that chooses a home among {options.replicas} replicas, processor time",
        title_justify="left",
    )
    for column in ("bytes", "messages", "marks", "read us", "p99", "choose us", "p99"):
        table.add_column(column, justify="right")
    figures: list[Figure] = []
    for one in placed:
        times = [
            percentile(seconds, q) for seconds in (one.read_s, one.choose_s) for q in (0.5, 0.99)
        ]
        sizes = (one.shared_bytes, one.messages, one.marks)
        table.add_row(*(f"{size:,}" for size in sizes), *(f"{1e6 * s:.1f}" for s in times))
        names = ("read_p50", "read_p99", "choose_p50", "choose_p99")
        figures += [
            Figure(f"{one.shared_bytes}/{name}", seconds, "s")
            for name, seconds in zip(names, times, strict=True)
        ]
    Console().print(table)
    print(machine())
    if options.json_file:
        configuration: dict[str, Any] = asdict(options)
        write_json(Path(options.json_file), "weft bench placing", configuration, figures)
    return 0


def measure(shared_bytes: int, messages: int, replicas: int, rounds: int) -> Placed:
    """Programs that share that much come one after the other. Times are means of a few calls."""
    draw = Random(shared_bytes)
    letters = "".join(draw.choices('abcdefghij     \n"', k=shared_bytes // messages))
    shared = [{"role": "user", "content": f"{number} {letters}"} for number in range(messages)]
    numbers, router, sent = count(), build("locality", 0), PrefixAffinityIndex(1_000_000)
    views = tuple(ReplicaView(f"r{i}", frozenset(), True, i) for i in range(replicas))
    names = frozenset(view.name for view in views)
    read_s, choose_s, marks = [], [], 0
    for _ in range(rounds):
        bodies = []
        for number in (next(numbers) for _ in range(_LOOPS)):
            own = {"role": "user", "content": f"{number} " * _OWN_BYTES}
            bodies.append(orjson.loads(orjson.dumps({"model": "m", "messages": [*shared, own]})))
        begun = thread_time()
        beginnings = [prefix_of(body, "m", "salt", 4.0) for body in bodies]
        read_s.append((thread_time() - begun) / _LOOPS)
        begun = thread_time()
        for beginning in beginnings:
            if beginning is not None:
                question = RouteRequest(
                    "m", shared_bytes // 4, None, views, shared=sent.shared(beginning, names)
                )
                decision = router.route(question, 0.0, draw)
                sent.sent(decision.replica, beginning)
        choose_s.append((thread_time() - begun) / _LOOPS)
        marks = max(len(one.marks) for one in beginnings if one is not None)
    return Placed(shared_bytes, messages, marks, read_s, choose_s)
