"""Counters of the engines from the gateway's `/weft/state`, summed over all engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from weft_bench.drive.client import Client


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


def simulated(state: Any) -> bool:
    """Return whether the engines are simulated, from the gateway's answer.

    Raises ValueError for a mix of both, because no figure can cover both.
    """
    found = set()
    replicas = state.get("replicas") if isinstance(state, Mapping) else None
    for replica in replicas.values() if isinstance(replicas, Mapping) else ():
        answer = replica.get("answer")
        weft = answer.get("weft") if isinstance(answer, Mapping) else None
        found.add(isinstance(weft, Mapping) and weft.get("simulated") is True)
    if len(found) > 1:
        raise ValueError("the gateway has simulated and real engines; a table cannot mix them")
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
