"""Transfers of KV blocks between the emulated device and its host. Nothing is copied: a block takes
its time on the link.

Two KV connectors are supported: Weft's SwapConnector, and vLLM's OffloadingConnector with host
memory. Only the connector's part in the scheduler runs; this module reads its plans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from weft_engine.emulated import compat


@dataclass(slots=True)
class Moves:
    """Transfers that a step waits for. blocks: moved in the step. ready_at: instant at which the
    step may begin."""

    blocks: int = 0
    ready_at: float = 0.0


@dataclass(slots=True)
class Job:
    """A transfer of vLLM's OffloadingConnector. request: the one that waits for a load; "" for a
    store. end: instant. seconds: the duration, with the wait for the link."""

    blocks: int
    request: str = ""
    end: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Block:
    """A KV block: its bytes, and its seconds on the link."""

    seconds: float
    size: int


class Link:
    """One direction of the link: transfers run one after another. moved: called with the number of
    blocks of each transfer."""

    def __init__(self, block: Block, moved: Callable[[int], None]) -> None:
        self.block = block
        self._moved = moved
        self._free_at = 0.0

    def move(self, blocks: int, now: float) -> float:
        """Move blocks. Returns the instant of their arrival."""
        self._moved(blocks)
        self._free_at = max(self._free_at, now) + blocks * self.block.seconds
        return self._free_at


class Transfers(Protocol):
    """The transfers of one engine. pending: whether some have not ended."""

    @property
    def pending(self) -> bool:
        """See the class."""

    def begin(self, output: Any, now: float) -> Moves:
        """Begin the transfers of a step. output: vLLM's SchedulerOutput."""

    def finished(self, now: float) -> Any:
        """Return vLLM's KVConnectorOutput with the transfers that have ended since the last call,
        or None."""


class NoTransfers:
    """An engine without a KV connector."""

    pending = False

    def begin(self, output: Any, now: float) -> Moves:
        """See Transfers."""
        return Moves()

    def finished(self, now: float) -> Any:
        """See Transfers."""
        return None


@dataclass
class Swaps:
    """The SwapConnector. A step waits for its copies, except for asynchronous copies in: those
    delay only the requests that need them."""

    inward: Link
    moved: Callable[[int], None]
    _loading: list[tuple[float, list[str]]] = field(default_factory=list)

    @property
    def pending(self) -> bool:
        """See Transfers."""
        return bool(self._loading)

    def begin(self, output: Any, now: float) -> Moves:
        """See Transfers."""
        plan = output.kv_connector_metadata
        if plan.loading:
            self._loading.append((self.inward.move(len(plan.back), now), plan.loading))
        blocks = len(plan.out) + (0 if plan.loading else len(plan.back))
        self.moved(blocks)
        return Moves(blocks)

    def finished(self, now: float) -> Any:
        """See Transfers."""
        arrived: set[str] = set()
        while self._loading and self._loading[0][0] <= now:
            arrived.update(self._loading.pop(0)[1])
        return compat.arrived(arrived) if arrived else None


@dataclass
class Offloads:
    """vLLM's OffloadingConnector. Loads and stores run beside the steps, each in its direction. A
    store begins after the step that computes its blocks. A step waits only for the stores of blocks
    that it overwrites."""

    inward: Link
    outward: Link
    _waiting: dict[int, Job] = field(default_factory=dict)
    _running: dict[int, Job] = field(default_factory=dict)

    @property
    def pending(self) -> bool:
        """See Transfers."""
        return bool(self._waiting or self._running)

    def begin(self, output: Any, now: float) -> Moves:
        """See Transfers."""
        plan = output.kv_connector_metadata
        overwritten = plan.jobs_to_flush or ()
        stores = {job: Job(len(store.src_spec.block_ids)) for job, store in plan.store_jobs.items()}
        self._waiting.update((job, stores.pop(job)) for job in overwritten if job in stores)
        for job, store in self._waiting.items():
            self._run(job, store, self.outward, now)
        self._waiting = stores
        for job, load in plan.load_jobs.items():
            self._run(job, Job(len(load.dst_spec.block_ids), load.req_id), self.inward, now)
        awaited = [self._running[job].end for job in overwritten if job in self._running]
        return Moves(ready_at=max(awaited, default=0.0))

    def finished(self, now: float) -> Any:
        """See Transfers."""
        ended = {number: job for number, job in self._running.items() if job.end <= now}
        for number in ended:
            del self._running[number]
        if not ended:
            return None
        done = [
            compat.Ended(number, job.request, job.blocks * self.inward.block.size, job.seconds)
            for number, job in ended.items()
        ]
        return compat.ended(done)

    def _run(self, number: int, job: Job, link: Link, now: float) -> None:
        job.end = link.move(job.blocks, now)
        job.seconds = job.end - now
        self._running[number] = job


def transfers_of(kv_transfer: Any, block: Block, moved: Callable[[int], None]) -> Transfers:
    """Return the transfers of an engine with this KVTransferConfig.

    moved: called with the number of moved blocks. Raises ValueError for a connector that is not
    supported.
    """
    if kv_transfer is None or kv_transfer.kv_connector is None:
        return NoTransfers()
    name = kv_transfer.kv_connector
    if name == "SwapConnector":
        return Swaps(Link(block, moved), moved)
    if name == "OffloadingConnector":
        return Offloads(Link(block, moved), Link(block, moved))
    raise ValueError(
        f"an emulated engine has no KV connector {name}: use SwapConnector or OffloadingConnector"
    )
