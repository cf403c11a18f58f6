"""Transfers beside the work of the current stream, on a device that delays and reorders all work
as far as its streams allow. tests/gpu has a real one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
import torch
from support.kv_layers import Cache, make, random_bytes
from support.streams import Device, Event
from weft_kernels import reference, transfer
from weft_kernels.layers import KVLayers, prepare

BLOCKS = 8
LIMITS = pytest.mark.parametrize("blocks_staged", [BLOCKS, 4, 2], ids=["one part", "two", "four"])


@dataclass
class Swaps:
    """A cache on the device, and host memory for all of its blocks."""

    device: Device
    cache: Cache = field(default_factory=lambda: make(blocks=BLOCKS))
    staged: int = BLOCKS

    def __post_init__(self) -> None:
        self.layers = prepare(self.cache.layers)
        self.size = self.layers.block_bytes
        self.host = random_bytes(BLOCKS * self.size)

    def gather(self, layers: KVLayers, blocks: torch.Tensor, staging: torch.Tensor) -> None:
        self.later(lambda: reference.gather(layers, blocks, staging))

    def scatter(self, layers: KVLayers, blocks: torch.Tensor, staging: torch.Tensor) -> None:
        self.later(lambda: reference.scatter(layers, blocks, staging))

    def later(self, operation: Callable[[], Any]) -> int:
        return self.device.current.add(operation)

    def out(self, blocks: list[int], wait: bool, slot: int = 0) -> None:
        part = self.host[slot * self.size :][: len(blocks) * self.size]
        with self.device:
            transfer.swap_out(
                self.layers, torch.tensor(blocks), part, self, self.staged * self.size, wait=wait
            )

    def back(self, blocks: list[int] | torch.Tensor, wait: bool) -> Event | None:
        with self.device:
            event: Any = transfer.swap_in(
                self.layers, torch.as_tensor(blocks), self.host[: len(blocks) * self.size], self,
                self.staged * self.size, wait=wait,
            )  # fmt: skip
        assert (event is None) == wait
        return event

    def overwrite(self, blocks: list[int]) -> None:
        """A step of the engine uses the blocks for another call."""
        numbers, garbage = torch.tensor(blocks), random_bytes(len(blocks) * self.size, seed=9)
        self.later(lambda: reference.scatter(self.layers, numbers, garbage))


@pytest.fixture
def swaps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Swaps]:
    transfer._link.cache_clear()
    device = Device()
    monkeypatch.setattr(transfer, "torch", device.torch)
    # torch's own method accepts only torch's streams.
    monkeypatch.setattr(torch.Tensor, "record_stream", device.record_stream)
    yield Swaps(device)
    transfer._link.cache_clear()


@LIMITS
@pytest.mark.parametrize("wait", [True, False], ids=["waits", "beside"])
@pytest.mark.parametrize("seed", range(10))
def test_swaps_keep_all_bytes_in_any_order_of_the_streams(swaps, wait, blocks_staged, seed):
    swaps.staged, order = blocks_staged, Random(seed)
    before = swaps.cache.bytes()
    for _ in range(3):
        blocks = order.sample(range(BLOCKS), BLOCKS)
        swaps.out(blocks, wait)
        swaps.overwrite(blocks)
        event = swaps.back(blocks, wait)
        if event is not None:
            # The next step reads the blocks.
            swaps.device.compute.wait_event(event)
    swaps.device.run(order)
    assert all(map(torch.equal, before, swaps.cache.bytes()))


@LIMITS
@pytest.mark.parametrize("seed", range(10))
def test_a_copy_out_waits_until_a_copy_in_has_read_its_host_memory(swaps, blocks_staged, seed):
    swaps.staged = blocks_staged
    before = swaps.cache.bytes()
    first, second = [0, 1, 2, 3], [4, 5, 6, 7]
    swaps.out(first, False)
    swaps.overwrite(first)
    swaps.back(first, False)
    swaps.out(second, False)
    swaps.device.run(Random(seed))
    assert all(map(torch.equal, before, swaps.cache.bytes()))
    assert torch.equal(swaps.host[: 4 * swaps.size], swaps.cache.expected(second))


@LIMITS
@pytest.mark.parametrize("seed", range(10))
def test_copies_out_after_each_other_do_not_share_staging_memory(swaps, blocks_staged, seed):
    swaps.staged = blocks_staged
    swaps.out([0, 1, 2, 3], False)
    swaps.out([4, 5, 6, 7], False, slot=4)
    swaps.device.run(Random(seed))
    assert torch.equal(swaps.host, swaps.cache.expected([*range(BLOCKS)]))


def test_a_step_waits_for_gathering_and_not_for_the_link_to_the_host(swaps):
    swaps.out([0, 1], False)
    step = swaps.later(lambda: None)
    assert swaps.device.needs(step) == swaps.device.of(swaps.device.compute) - {step}
    swaps.out([0, 1], True)
    step = swaps.later(lambda: None)
    assert swaps.device.needs(step) == set(range(step))


def test_a_step_does_not_wait_for_a_copy_in_beside_it(swaps):
    numbers = torch.tensor([0, 1])
    event = swaps.back(numbers, False)
    step = swaps.later(lambda: None)
    assert swaps.device.needs(step) == set()
    assert event is not None
    last = max(event.work)
    assert swaps.device.needs(last) | {last} == set(range(step))
    # The list of blocks is read after the caller has dropped it.
    assert swaps.device.keeps(numbers)
