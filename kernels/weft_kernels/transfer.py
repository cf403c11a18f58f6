"""Swaps between a GPU and pinned host memory, through a bounded staging buffer on the GPU.

A swap that fits into the staging buffer takes one transfer. A larger swap is cut into parts: while
a separate stream transfers one half of the buffer, the next blocks are gathered into the other
half, so that the link to the host does not wait for the gathering.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol

import torch

from weft_kernels.layers import KVLayers

# Half of it keeps a PCIe 5 link busy for about 0.5 ms, which is much longer than a kernel launch.
STAGING_LIMIT: Final = 64 * 1024**2


class Copies(Protocol):
    """Copies on one device; implemented by `weft_kernels.triton_swap` and `.reference`."""

    def gather(self, layers: KVLayers, blocks: torch.Tensor, staging: torch.Tensor) -> None:
        """Copy the blocks to the front of the staging buffer."""

    def scatter(self, layers: KVLayers, blocks: torch.Tensor, staging: torch.Tensor) -> None:
        """Copy the front of the staging buffer to the blocks."""


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks `first` to `end` (excluded) of a swap, and the half of the staging buffer they use."""

    first: int
    end: int
    half: int


def parts_of(count: int, block_bytes: int, limit: int) -> Iterator[Part]:
    """Cut a swap into parts.

    A swap within `limit` bytes is one part. Otherwise a part takes half of the limit, and at least
    one block.
    """
    if count * block_bytes <= limit:
        yield Part(0, count, 0)
        return
    step = max(1, limit // 2 // block_bytes)
    # Lists of block numbers then begin at an even index; an odd one needs a second compiled kernel.
    step -= step % 2 if step > 1 else 0
    for number, first in enumerate(range(0, count, step)):
        yield Part(first, min(first + step, count), number % 2)


def swap_out(
    layers: KVLayers,
    blocks: torch.Tensor,
    host: torch.Tensor,
    copies: Copies,
    limit: int,
    *,
    wait: bool = True,
) -> None:
    """Gather blocks (int64, on the GPU) and transfer them to `host` (uint8, pinned).

    wait: the current stream waits for the last transfer, and otherwise only for the gathering.
    """
    size = layers.block_bytes
    parts = list(parts_of(len(blocks), size, limit))
    staging = _staging(layers, parts)
    with torch.cuda.device(layers.device):
        compute, link = torch.cuda.current_stream(), _link(layers.device, "out")
        # A running copy in may still read this host memory.
        link.wait_stream(_link(layers.device, "in"))
        sent: dict[int, torch.cuda.Event] = {}
        for part in parts:
            staged = staging[part.half][: (part.end - part.first) * size]
            if part.half in sent:
                compute.wait_event(sent[part.half])
            copies.gather(layers, blocks[part.first : part.end], staged)
            link.wait_stream(compute)
            with torch.cuda.stream(link):
                host[part.first * size : part.end * size].copy_(staged, non_blocking=True)
                sent[part.half] = link.record_event()
        if wait:
            compute.wait_stream(link)
        else:
            # Otherwise the allocator could reuse the staging memory too early.
            staging[0].record_stream(link)


def swap_in(
    layers: KVLayers,
    blocks: torch.Tensor,
    host: torch.Tensor,
    copies: Copies,
    limit: int,
    *,
    wait: bool = True,
) -> torch.cuda.Event | None:
    """Transfer `host` (uint8, pinned) to the GPU and scatter it to blocks (int64, on the GPU).

    wait: the current stream waits until the blocks are in place. Otherwise it continues at once,
    and the returned event is reached when they are in place.
    """
    size = layers.block_bytes
    parts = list(parts_of(len(blocks), size, limit))
    staging = _staging(layers, parts)
    with torch.cuda.device(layers.device):
        compute, link = torch.cuda.current_stream(), _link(layers.device, "in")
        # Earlier work on the current stream may still read the staging memory or use the blocks,
        # and a running copy out may still write this host memory.
        link.wait_stream(compute)
        link.wait_stream(_link(layers.device, "out"))
        scattering = compute if wait else link
        placed: dict[int, torch.cuda.Event] = {}
        for part in parts:
            staged = staging[part.half][: (part.end - part.first) * size]
            with torch.cuda.stream(link):
                if part.half in placed:
                    link.wait_event(placed[part.half])
                staged.copy_(host[part.first * size : part.end * size], non_blocking=True)
            scattering.wait_stream(link)
            with torch.cuda.stream(scattering):
                copies.scatter(layers, blocks[part.first : part.end], staged)
                placed[part.half] = scattering.record_event()
        if wait:
            return None
        # Otherwise the allocator could reuse this memory too early.
        for used in (staging[0], blocks):
            used.record_stream(link)
        return link.record_event()


def _staging(layers: KVLayers, parts: list[Part]) -> list[torch.Tensor]:
    """Return the halves that the parts need, on the layers' device."""
    half = max(part.end - part.first for part in parts) * layers.block_bytes
    # Both halves are aligned for 16-byte loads.
    half = (half + 15) // 16 * 16
    halves = 1 + max(part.half for part in parts)
    buffer = torch.empty(halves * half, dtype=torch.uint8, device=layers.device)
    return list(buffer.split(half))


@cache
def _link(device: torch.device, direction: str) -> torch.cuda.Stream:
    """Return the stream for transfers in one direction; the link to the host is full duplex."""
    return torch.cuda.Stream(device)
