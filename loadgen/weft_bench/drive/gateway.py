"""A gateway: the model behind it, its engines' counters and their order."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from typing import Any, Final
from urllib.parse import quote

from weft_bench.drive.client import Client, Refused

CHAT: Final = "/v1/chat/completions"
_DEFAULT_CONTEXT: Final = 4096


def session(name: str) -> str:
    """Return the path of a program's session."""
    return f"/v1/sessions/{quote(name, safe='')}"


async def served(client: Client) -> tuple[str, int]:
    """Return the name of the served model and its context in tokens.

    Raises ValueError if the gateway or engine serves no model.
    """
    try:
        card = (await client.get("/v1/models")).json()["data"][0]
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise ValueError(f"{client.base_url} serves no model: {error}") from None
    return str(card["id"]), int(card.get("max_model_len") or _DEFAULT_CONTEXT)


async def count_tokens(
    client: Client, model: str, messages: Sequence[Mapping[str, Any]], *, program: str = ""
) -> float:
    """Return the prompt tokens of messages, by the engine's count.

    program: of the call, "" for none. Raises ValueError if the engine rejects the call.
    """
    body = {"model": model, "messages": messages, "max_tokens": 1}
    headers = {"x-weft-program": program} if program else {}
    answer = await client.post(CHAT, body, headers)
    return float(answer.json()["usage"]["prompt_tokens"])


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """Totals since the engines started.

    The first field counts running calls that were preempted for better ones. recomputed_tokens:
    computed again after a preemption. blocks_swapped_out, blocks_swapped_in: KV blocks to host
    memory and back, 0 without swap.
    """

    displacements: int = 0
    recomputed_tokens: int = 0
    blocks_swapped_out: int = 0
    blocks_swapped_in: int = 0

    def since(self, earlier: EngineCounters) -> EngineCounters:
        """Return the difference to earlier counters."""
        return EngineCounters(
            *(getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self))
        )

    @classmethod
    def of_state(cls, state: Any) -> EngineCounters:
        """Read the gateway's answer.

        Engines without counters, such as stock vLLM, count as 0. Raises ValueError for another
        answer.
        """
        found = list(engines(state))
        swaps = [engine["swap"] for engine in found if isinstance(engine.get("swap"), Mapping)]
        return cls(
            displacements=sum(int(e.get("displacements", 0)) for e in found),
            recomputed_tokens=sum(int(e.get("recomputed_tokens", 0)) for e in found),
            blocks_swapped_out=sum(int(s.get("swapped_out", 0)) for s in swaps),
            blocks_swapped_in=sum(int(s.get("swapped_in", 0)) for s in swaps),
        )


async def read_counters(client: Client) -> EngineCounters:
    """Ask the gateway. Raises OSError or ValueError if it does not answer."""
    return EngineCounters.of_state((await client.get("/weft/state")).json())


def emulated(state: Any) -> bool:
    """Return whether the engines are emulated, from the gateway's answer.

    Raises ValueError for a mix of both, because no figure can cover both, and for another answer.
    """
    found = {"emulated" in engine for engine in engines(state)}
    if len(found) > 1:
        raise ValueError("the gateway has emulated and real engines; a table cannot mix them")
    return found == {True}


def engines(state: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the state that each engine reports in the gateway's answer.

    Raises ValueError for another answer.
    """
    replicas = state.get("replicas") if isinstance(state, Mapping) else None
    if not isinstance(replicas, Mapping):
        raise ValueError(f"this is not a gateway's state: {str(state)[:200]}")
    for replica in replicas.values():
        answer = replica.get("answer")
        if isinstance(answer, Mapping):
            yield from answer.get("engines", ())


class OrderError(RuntimeError):
    """The engines do not accept an order. The message says why."""


async def set_order(client: Client, order: str, *, reset_cache: bool) -> None:
    """Set the order in every engine.

    reset_cache: also empty the prefix caches. Raises OrderError.
    """
    body = {"policy": order, "reset_cache": reset_cache}
    try:
        answer = await client.post("/weft/policy", body)
        applied = answer.json()["applied"]
    except Refused as error:
        raise OrderError(f"policy {order}: the gateway answered {error}") from None
    except OSError as error:
        raise OrderError(f"policy {order}: no answer from {client.base_url}: {error}") from None
    if not applied:
        raise OrderError(f"policy {order}: an engine rejected it: {answer.text[:500]}")


async def order_of(client: Client) -> str:
    """Return the order that all engines have; "" if they differ or do not report it."""
    try:
        state = (await client.get("/weft/state")).json()
        found = {engine.get("policy") for engine in engines(state)}
    except (OSError, ValueError):
        return ""
    return str(found.pop() or "") if len(found) == 1 else ""


@asynccontextmanager
async def kept_order(client: Client) -> AsyncIterator[None]:
    """Restore the engines' order after the block. A failure is printed to stderr."""
    before = await order_of(client)
    try:
        yield
    finally:
        try:
            if not before:
                raise OrderError("the previous order is unknown")
            await set_order(client, before, reset_cache=False)
        except OrderError as error:
            print(f"the engines keep the last order: {error}", file=sys.stderr)
