"""`weft bench tenants`: an honest tenant alone, and next to a tenant that attacks it."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, nullcontext
from dataclasses import asdict
from typing import Final

from weft_bench.cli.parts import TenantsOptions
from weft_bench.drive.client import Client
from weft_bench.drive.counters import engines
from weft_bench.drive.gateway import count_tokens, served
from weft_bench.drive.order import OrderError, kept_order, set_order
from weft_bench.report import tenants as report
from weft_bench.report.goals import conclude
from weft_bench.stack.local import StackError, stack_at
from weft_bench.tenants.agents import ATTACKS, PINS
from weft_bench.tenants.scenes import Column, Load, Pinned, Target, contend, pin, words

_CALL_S: Final = 600.0
_PROBE_TOKENS: Final = 200


def run(options: TenantsOptions) -> int:
    """Measure and report.

    Returns the exit status: 1 if a goal is missed, 2 for invalid input.
    """
    try:
        with stack_at(options.base_url, lambda: _setup(options)) as base:
            times, pins = asyncio.run(_measure(options, base))
    except (OrderError, StackError, OSError, ValueError, KeyError, IndexError) as error:
        print(f"weft bench tenants: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    missed = report.missed(times, pins)
    tables = report.tables(times, pins)
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
    return conclude(command, title, "real engine", tables, cells, missed, options.json_file)


def _setup(options: TenantsOptions) -> tuple[list[str], dict[str, str]]:
    line = ["--replicas", "1", "--", "--max-num-seqs", str(options.slots)]
    return [*line, "--num-gpu-blocks-override", str(options.kv_blocks)], {}


async def _measure(
    options: TenantsOptions, base: str
) -> tuple[dict[str, list[Column]], dict[str, list[Pinned]]]:
    load = Load(options.agents, options.threads, options.calls, options.max_tokens)
    times: dict[str, list[Column]] = {}
    pins: dict[str, list[Pinned]] = {}
    async with Client(base, limit_s=_CALL_S) as client, AsyncExitStack() as stack:
        await stack.enter_async_context(kept_order(client) if options.base_url else nullcontext())
        target = await _target(client)
        for policy in options.policies:
            times[policy] = [Column("alone"), *(Column(a.name, a.control) for a in ATTACKS)]
            for _ in range(options.repeats):
                for attack, column in zip((None, *ATTACKS), times[policy], strict=True):
                    await set_order(client, policy, reset_cache=True)
                    await contend(target, attack, load, column)
            pins[policy] = []
            for attack in PINS:
                await set_order(client, policy, reset_cache=True)
                pins[policy].append(await pin(target, attack, options.rounds))
            print(f"{policy}: done", file=sys.stderr, flush=True)
    return times, pins


async def _target(client: Client) -> Target:
    model, context = await served(client)
    cache = sum(
        int(e.get("cache_tokens", 0)) for e in engines((await client.get("/weft/state")).json())
    )
    probe = [{"role": "user", "content": words("probe", _PROBE_TOKENS, 1.0)}]
    ratio = await count_tokens(client, model, probe) / _PROBE_TOKENS
    return Target(client, model, context, cache, ratio)
