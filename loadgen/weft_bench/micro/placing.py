"""`weft bench placing`: the gateway's time to choose a program's replica."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import count
from random import Random
from time import thread_time
from typing import Final

import orjson
from weft_gateway.engine.prefixes import prefix_of
from weft_gateway.model import ReplicaView, RouteRequest
from weft_gateway.policies.route.prefixes import PrefixAffinityIndex
from weft_gateway.policies.route.registry import build

from weft_bench.report.figures import finish
from weft_bench.report.rows import Column, figures, show
from weft_bench.stats import percentile

# Pairs of (bytes that programs share, messages that contain them).
_PROMPTS: Final = ((4_096, 1), (36_000, 2), (150_000, 300))
_OWN_BYTES: Final = 400
_LOOPS: Final = 20


@dataclass(frozen=True, slots=True)
class PlacingOptions:
    """Options of the command; see `weft bench placing --help`."""

    replicas: int = 4
    rounds: int = 100
    json_file: str = ""


_COLUMNS: Final = (
    Column("messages", "messages", "messages", ",.0f"),
    Column("marks", "marks", "marks", ",.0f"),
    Column("read_p50", "s", "read, us", ".1f", 1e6),
    Column("read_p99", "s", "read p99, us", ".1f", 1e6),
    Column("choose_p50", "s", "choose, us", ".1f", 1e6),
    Column("choose_p99", "s", "choose p99, us", ".1f", 1e6),
)


def run(options: PlacingOptions) -> int:
    """Measure and report. Returns the exit status."""
    rows = {
        (str(shared),): measure(shared, messages, options.replicas, options.rounds)
        for shared, messages in _PROMPTS
    }
    title = f"processor time of a call that chooses among {options.replicas} replicas"
    show(title, ("bytes",), rows, _COLUMNS)
    finish("placing", options.json_file, asdict(options), figures(rows, _COLUMNS))
    return 0


def measure(shared_bytes: int, messages: int, replicas: int, rounds: int) -> dict[str, float]:
    """Return the figures, by the names of _COLUMNS, of programs that arrive one after the other.

    read: from the parsed body to its marks. choose: look up the marks, weigh them against the load,
    and record the choice. Each is the mean of a few calls in seconds.
    """
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
                decision = router.route(question, draw)
                sent.sent(decision.replica, beginning)
        choose_s.append((thread_time() - begun) / _LOOPS)
        marks = max(len(one.marks) for one in beginnings if one is not None)
    return {
        "messages": messages,
        "marks": marks,
        "read_p50": percentile(read_s, 0.5),
        "read_p99": percentile(read_s, 0.99),
        "choose_p50": percentile(choose_s, 0.5),
        "choose_p99": percentile(choose_s, 0.99),
    }
