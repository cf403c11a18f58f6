"""`weft bench tenants`: an honest tenant alone, and next to a tenant that attacks it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import asdict
from typing import Any, Final

from weft_bench.cli.parts import TenantsOptions
from weft_bench.drive.client import Client
from weft_bench.drive.gateway import (
    OrderError,
    count_tokens,
    engines,
    kept_order,
    served,
    set_order,
)
from weft_bench.report.figures import refuse
from weft_bench.report.page import conclude
from weft_bench.stack.local import StackError, stack_at
from weft_bench.tenants.agents import ATTACKS, PINS
from weft_bench.tenants.scenes import PAIRS, Column, Pinned, Target, contend, pin, words

# Goals of this project.
SLOWDOWN_GOAL: Final = 2.5
HIT_RATE_GOAL: Final = 0.1
# Orders that are only shown for comparison.
WITHOUT_GOAL: Final = ("fcfs",)

Times = Mapping[str, Sequence[Column]]
Pins = Mapping[str, Sequence[Pinned]]


def slowdown(column: Column, alone: Column) -> float:
    """Return the honest tenant's mean call over its mean call alone."""
    return column.mean_s / alone.mean_s if alone.mean_s else float("nan")


def missed(times: Times, pins: Pins) -> list[str]:
    """Return the missed goals as text.

    A control without harm is a miss too, because its attack proves nothing.
    """
    found = []
    for order, (alone, *columns) in times.items():
        for column in (alone, *columns):
            found += _failed(f"{order}, {column.attack}", column.errors)
        for column in columns:
            name, ratio = f"{order}, {column.attack}", slowdown(column, alone)
            if not (column.served or column.in_flight):
                found.append(f"{name}: the attack did not take place: no call served, {column.why}")
            elif order in WITHOUT_GOAL:
                continue
            elif column.stopped and not column.control:
                found.append(f"{name}: {column.stopped} repeats reached the time limit")
            elif column.control == (ratio <= SLOWDOWN_GOAL and not column.stopped):
                found.append(f"{name}: {ratio:.2f} times the mean alone{_side(column.control)}")
    for order, pinned in pins.items():
        for one in pinned:
            name, lost = f"{order}, {one.attack}", one.before - one.during
            found += _failed(name, one.errors)
            if not (one.served and one.pinned_blocks):
                found.append(f"{name}: the attack did not take place: no pinned blocks")
            elif order not in WITHOUT_GOAL and one.control == (lost <= HIT_RATE_GOAL):
                found.append(f"{name}: the hit rate falls by {lost:.3f}{_side(one.control)}")
    return found


def _failed(name: str, errors: Sequence[str]) -> list[str]:
    return [f"{name}: {len(errors)} honest calls failed: {errors[0]}"] if errors else []


def _side(control: bool) -> str:
    return ", which is no harm, so the attack proves nothing" if control else ", above the goal"


def tables(times: Times, pins: Pins) -> list[dict[str, Any]]:
    """Return the tables of slowdowns and of hit rates."""
    slow, lost = [], []
    for order, columns in times.items():
        for column in columns:
            spread = f"{min(column.means):.3f} to {max(column.means):.3f}"
            ratio = "" if column is columns[0] else f"{slowdown(column, columns[0]):.2f}"
            did = [f"{count:,}" for count in (column.served, column.refused, column.tokens)]
            bound = ">= " if column.stopped else ""
            row = [order, column.attack, f"{bound}{column.mean_s:.3f}", spread]
            row += [f"{bound}{column.p95_s:.3f}", f"{bound}{ratio}" if ratio else ""]
            slow.append([*row, *(did if ratio else ["", "", ""])])
    for order, pinned in pins.items():
        for one in pinned:
            rates = [one.before, one.during, one.before - one.during]
            did = [f"{count:,}" for count in (one.served, one.refused, one.pinned_blocks)]
            lost.append([order, one.attack, *(f"{rate:.3f}" for rate in rates), *did])
    no_goal = f"no goal for {', '.join(WITHOUT_GOAL)}"
    return [
        {
            "title": "calls of the honest tenant, seconds, and the attacker's calls and tokens. "
            f"The goal is at most {SLOWDOWN_GOAL:g} times the mean alone, and more than that if "
            f"both share one key; {no_goal}",
            "labels": 2,
            "columns": [
                "order", "attack", "mean", "repeats", "p95", "over alone", "calls served",
                "refused", "tokens",
            ],
            "rows": slow,
        },
        {
            "title": "hit rate of the honest tenant while the attacker keeps pinning. The goal "
            f"is to lose at most {HIT_RATE_GOAL:g}, and more than that if both share one key; "
            f"{no_goal}",
            "labels": 2,
            "columns": [
                "order", "attack", "before", "during", "lost", "calls served", "refused",
                "pinned blocks",
            ],
            "rows": lost,
        },
    ]  # fmt: skip


_CALL_S: Final = 600.0
_KEY: Final = {"authorization": f"Bearer {PAIRS[0][0]}"}
_PROBE_TOKENS: Final = 200


def run(options: TenantsOptions) -> int:
    """Measure and report.

    Returns the exit status: 1 if a goal is missed, 2 for invalid input.
    """
    try:
        with stack_at(options.base_url, lambda: _setup(options)) as base:
            times, pins = asyncio.run(_measure(options, base))
    except (OrderError, StackError, OSError, ValueError, KeyError, IndexError) as error:
        return refuse("tenants", error)
    except KeyboardInterrupt:
        return 130
    goals = missed(times, pins)
    shown = tables(times, pins)
    cells = [
        {"order": order, **asdict(one)}
        for found in (times, pins)
        for order, columns in found.items()
        for one in columns
    ]
    command = (
        f"weft bench tenants --policy {','.join(options.policies)} --agents {options.agents} "
        f"--threads {options.threads} --slots {options.slots} --kv-blocks {options.kv_blocks} "
        f"--calls {options.calls} --max-tokens {options.max_tokens} --repeats {options.repeats}"
    )
    title = "An honest tenant next to one that attacks it"
    return conclude(command, title, "real engine", shown, cells, goals, options.json_file)


def _setup(options: TenantsOptions) -> tuple[list[str], dict[str, str]]:
    line = ["--replicas", "1", "--", "--max-num-seqs", str(options.slots)]
    keys = {"WEFT_API_KEYS": ",".join(key for pair in PAIRS for key in pair)}
    return [*line, "--num-gpu-blocks-override", str(options.kv_blocks)], keys


async def _measure(
    options: TenantsOptions, base: str
) -> tuple[dict[str, list[Column]], dict[str, list[Pinned]]]:
    times: dict[str, list[Column]] = {}
    pins: dict[str, list[Pinned]] = {}
    async with Client(base, limit_s=_CALL_S) as client, AsyncExitStack() as stack:
        await stack.enter_async_context(kept_order(client) if options.base_url else nullcontext())
        target = await _target(client, base)
        for policy in options.policies:
            times[policy] = [Column("alone"), *(Column(a.name, a.control) for a in ATTACKS)]
            for _ in range(options.repeats):
                for attack, column in zip((None, *ATTACKS), times[policy], strict=True):
                    await set_order(client, policy, reset_cache=True)
                    await contend(target, attack, options, column)
            pins[policy] = []
            for attack in PINS:
                await set_order(client, policy, reset_cache=True)
                pins[policy].append(await pin(target, attack, options.rounds))
            print(f"{policy}: done", file=sys.stderr, flush=True)
    return times, pins


async def _target(client: Client, base: str) -> Target:
    probe = [{"role": "user", "content": words("probe", _PROBE_TOKENS, 1.0)}]
    async with Client(base, _KEY) as keyed:
        model, context = await served(keyed)
        ratio = await count_tokens(keyed, model, probe) / _PROBE_TOKENS
    cache = sum(
        int(e.get("cache_tokens", 0)) for e in engines((await client.get("/weft/state")).json())
    )
    return Target(client, model, context, cache, ratio)
