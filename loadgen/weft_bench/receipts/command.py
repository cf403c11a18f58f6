"""`weft bench receipts`: what a call's receipt takes, by how many tenants and programs share the
room, before it is taken and after."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path
from time import process_time
from typing import Final

from rich.console import Console
from rich.table import Table
from weft_gateway.model import Decision, ProgramKey
from weft_gateway.telemetry.receipts import Receipt, Receipts

from weft_bench.report.figures import Figure, machine, write_json
from weft_bench.streams import stream

# Tenants, and programs of each, whose calls come in no order.
SCENES: Final = ((1, 1), (1, 512), (20, 1), (20, 25), (200, 3))
_DECISION: Final = Decision("r0", False, frozenset({"r0", "r1"}), "least used")
_AGE_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class ReceiptsOptions:
    """Options of the command; see `weft bench receipts --help`."""

    limit: int = 4096
    rounds: int = 9
    json_file: str = ""


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of processor time a call, medians of the rounds. room: while there is some.
    full: once each receipt takes the place of another."""

    tenants: int
    programs: int
    room_us: float
    full_us: float


def run(options: ReceiptsOptions) -> int:
    """Measure and report. Returns the exit status."""
    try:
        costs = [measure(*scene, options.limit, options.rounds) for scene in SCENES]
    except KeyboardInterrupt:
        return 130
    table = Table(title=f"A call's receipt, {options.limit:,} kept", title_justify="left")
    for column in ("tenants", "programs each", "with room, us", "full, us"):
        table.add_column(column, justify="right")
    figures = []
    for cost in costs:
        us = (cost.room_us, cost.full_us)
        table.add_row(str(cost.tenants), str(cost.programs), *(f"{each:.2f}" for each in us))
        name = f"{cost.tenants} tenants/{cost.programs} programs"
        pairs = zip(("room", "full"), us, strict=True)
        figures += [Figure(f"{name}/{what}", value, "us") for what, value in pairs]
    Console(width=100).print(table)
    print(machine())
    if options.json_file:
        write_json(Path(options.json_file), "weft bench receipts", asdict(options), figures)
    return 0


def measure(tenants: int, programs: int, limit: int, rounds: int) -> Cost:
    """One scene: `limit` calls that find room, then as many that do not."""
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
    return Cost(tenants, programs, statistics.median(room_us), statistics.median(full_us))


def _add(receipts: Receipts, calls: Sequence[tuple[str, str, ProgramKey]]) -> float:
    """Seconds of processor time for the receipts of these calls."""
    begun = process_time()
    for request, call, key in calls:
        about = ("main", "", "lineage", "chat", "m", begun, _DECISION, "r0", 100, None)
        receipts.add(Receipt(request, call, key, *about))
    return process_time() - begun
