"""`weft bench tenants`: an honest tenant alone, and beside a tenant that attacks it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import httpx

from weft_bench.drive.counters import engines
from weft_bench.drive.order import OrderError, kept_order, set_order
from weft_bench.report import tenants as report
from weft_bench.report.figures import machine, write_json
from weft_bench.stack.local import StackError, stack_at
from weft_bench.tenants.scenes import Column, Pinned, contend, pin, words

_CALL_S: Final = 600.0
_PROBE_TOKENS: Final = 200


@dataclass(frozen=True, slots=True)
class TenantsOptions:
    """Options of the command; see `weft bench tenants --help`."""

    policies: Sequence[str] = ("warm_plas", "plas", "vtc")
    base_url: str = ""
    agents: int = 4
    threads: int = 24
    slots: int = 4
    kv_blocks: int = 300
    calls: int = 20
    max_tokens: int = 96
    rounds: int = 8
    json_file: str = ""


def run(options: TenantsOptions) -> int:
    """Measure and report. Returns the exit status: 1 when a call failed, 2 for bad input."""
    try:
        with stack_at(options.base_url, lambda: _setup(options)) as base:
            times, pins = asyncio.run(_measure(options, base))
    except (OrderError, StackError, httpx.HTTPError, KeyError, IndexError) as error:
        print(f"weft bench tenants: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    report.show(times, pins)
    print(machine())
    if options.json_file:
        write_json(
            Path(options.json_file),
            "weft bench tenants",
            asdict(options),
            report.figures(times, pins),
        )
    failures = [why for columns in times.values() for column in columns for why in column.errors]
    failures += [why for pinned in pins.values() for why in pinned.errors]
    for why in failures[:5]:
        print(f"error: {why}", file=sys.stderr)
    return 1 if failures else 0


def _setup(options: TenantsOptions) -> tuple[list[str], dict[str, str]]:
    line = ["--replicas", "1", "--", "--max-num-seqs", str(options.slots)]
    return [*line, "--num-gpu-blocks-override", str(options.kv_blocks)], {}


async def _measure(
    options: TenantsOptions, base: str
) -> tuple[dict[str, list[Column]], dict[str, Pinned]]:
    limits = httpx.Limits(max_connections=None)
    times: dict[str, list[Column]] = {}
    pins: dict[str, Pinned] = {}
    async with (
        httpx.AsyncClient(timeout=_CALL_S, limits=limits, trust_env=False) as client,
        AsyncExitStack() as stack,
    ):
        card = (await client.get(f"{base}/v1/models")).raise_for_status().json()["data"][0]
        await stack.enter_async_context(
            kept_order(client, base) if options.base_url else nullcontext()
        )
        state = (await client.get(f"{base}/weft/state")).raise_for_status().json()
        cache = sum(int(engine.get("cache_tokens", 0)) for engine in engines(state))
        ratio = await _tokens_per_word(client, base, card["id"])
        for policy in options.policies:
            await set_order(client, base, policy, reset_cache=True)
            times[policy] = await contend(
                client,
                base,
                card["id"],
                agents=options.agents,
                threads=options.threads,
                calls=options.calls,
                max_tokens=options.max_tokens,
            )
            await set_order(client, base, policy, reset_cache=True)
            pins[policy] = await pin(
                client,
                base,
                card["id"],
                cache_tokens=cache,
                context=int(card.get("max_model_len") or 4096),
                tokens_per_word=ratio,
                rounds=options.rounds,
            )
    return times, pins


async def _tokens_per_word(client: httpx.AsyncClient, base: str, model: str) -> float:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": words("probe", _PROBE_TOKENS, 1.0)}],
        "max_tokens": 1,
    }
    answer = await client.post(f"{base}/v1/chat/completions", json=body)
    return float(answer.raise_for_status().json()["usage"]["prompt_tokens"]) / _PROBE_TOKENS
