"""`weft bench receipts`: the time to store a call's receipt, by number of tenants and programs.

It measures a store with free room and a full store.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from itertools import count, islice
from time import process_time
from typing import Final

from weft_gateway.model import Decision, ProgramKey
from weft_gateway.telemetry.receipts import Receipt, Receipts

from weft_bench.cli.parts import ReceiptsOptions
from weft_bench.report.figures import finish
from weft_bench.report.rows import Column, figures, show
from weft_bench.workloads.streams import stream

# Pairs of (tenants, programs of each). Their calls come in random order.
SCENES: Final = ((1, 1), (1, 512), (20, 1), (20, 25), (200, 3))
_DECISION: Final = Decision("r0", False, frozenset({"r0", "r1"}), "least used")
_AGE_S: Final = 3600.0


# Before the store is full, and when each receipt replaces another.
_COLUMNS: Final = (
    Column("room", "us", "with room, us", ".2f"),
    Column("full", "us", "full, us", ".2f"),
)


def run(options: ReceiptsOptions) -> int:
    """Measure and report. Returns the exit status."""
    rows = {
        (f"{tenants} tenants", f"{programs} programs"): measure(
            tenants, programs, options.limit, options.rounds
        )
        for tenants, programs in SCENES
    }
    title = f"A call's receipt, {options.limit:,} kept: processor time"
    show(title, ("tenants", "programs each"), rows, _COLUMNS)
    finish("receipts", options.json_file, asdict(options), figures(rows, _COLUMNS))
    return 0


def measure(tenants: int, programs: int, limit: int, rounds: int) -> dict[str, float]:
    """Measure one scene: `limit` calls with free room, then as many with a full store.

    Returns microseconds of processor time per call, medians of the rounds.
    """
    keys = [
        ProgramKey(f"tenant-{tenant}", f"program-{program}")
        for tenant in range(tenants)
        for program in range(programs)
    ]
    room_us: list[float] = []
    full_us: list[float] = []
    for number in range(rounds):
        rng = stream(number, "receipts")
        receipts, names = Receipts(limit, _AGE_S), count()
        for times in (room_us, full_us):
            numbers = islice(names, limit)
            calls = [(f"req{n}", f"call{n}", rng.choice(keys)) for n in numbers]
            times.append(1e6 * _add(receipts, calls) / limit)
    return {"room": statistics.median(room_us), "full": statistics.median(full_us)}


def _add(receipts: Receipts, calls: Sequence[tuple[str, str, ProgramKey]]) -> float:
    """Return the seconds of processor time to store the receipts of these calls."""
    begun = process_time()
    for request, call, key in calls:
        about = ("main", "", "lineage", "chat", "m", begun, _DECISION, "r0", 100, None)
        receipts.add(Receipt(request, call, key, *about))
    return process_time() - begun
