"""What the engines have done to calls, by the gateway's `/weft/state`: sums over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import httpx


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """Totals since the engines started. displacements: running calls that gave way to better ones;
    recomputed_tokens: computed again after a preemption; blocks_swapped_out, blocks_swapped_in: KV
    blocks to host memory and back, 0 where swap is off."""

    displacements: int = 0
    recomputed_tokens: int = 0
    blocks_swapped_out: int = 0
    blocks_swapped_in: int = 0

    def since(self, earlier: EngineCounters) -> EngineCounters:
        """What has been added."""
        return EngineCounters(
            *(getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self))
        )

    @classmethod
    def of_state(cls, state: Any) -> EngineCounters:
        """Read the gateway's answer. Engines that do not tell, as stock vLLM, count as 0. Raises
        ValueError for another answer."""
        found = list(engines(state))
        swaps = [engine["swap"] for engine in found if isinstance(engine.get("swap"), Mapping)]
        return cls(
            displacements=sum(int(e.get("displacements", 0)) for e in found),
            recomputed_tokens=sum(int(e.get("recomputed_tokens", 0)) for e in found),
            blocks_swapped_out=sum(int(s.get("swapped_out", 0)) for s in swaps),
            blocks_swapped_in=sum(int(s.get("swapped_in", 0)) for s in swaps),
        )


async def read_counters(client: httpx.AsyncClient, base: str) -> EngineCounters:
    """Ask the gateway at `base`. Raises httpx.HTTPError or ValueError where it does not answer."""
    answer = await client.get(f"{base}/weft/state")
    return EngineCounters.of_state(answer.raise_for_status().json())


def simulated(state: Any) -> bool:
    """Whether the engines are simulated, by the gateway's answer. ValueError where some are and
    others not: no figure can be told of both."""
    found = set()
    replicas = state.get("replicas") if isinstance(state, Mapping) else None
    for replica in replicas.values() if isinstance(replicas, Mapping) else ():
        answer = replica.get("answer")
        weft = answer.get("weft") if isinstance(answer, Mapping) else None
        found.add(isinstance(weft, Mapping) and weft.get("simulated") is True)
    if len(found) > 1:
        raise ValueError("simulated and real engines stand side by side: no table mixes them")
    return found == {True}


def engines(state: Any) -> Iterator[Mapping[str, Any]]:
    """What each engine tells of itself in the gateway's answer; nothing of those that do not tell.
    ValueError where this is no such answer."""
    replicas = state.get("replicas") if isinstance(state, Mapping) else None
    if not isinstance(replicas, Mapping):
        raise ValueError(f"this is no state of a gateway: {str(state)[:200]}")
    for replica in replicas.values():
        answer = replica.get("answer")
        if isinstance(answer, Mapping):
            yield from answer.get("engines", ())
