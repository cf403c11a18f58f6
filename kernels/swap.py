"""Move KV blocks between their scattered places and one contiguous buffer.

Agentix (section 4.2.2) gathers a displaced call's blocks into one buffer and moves that in a single
transfer, instead of one transfer for each block and layer. `gather_blocks` and `scatter_blocks` do
the first half, `swap_out` and `swap_in` the whole.

`layers` are a cache's tensors, one a layer, or what `kernels.layers.prepare` made of them: that
saves looking at them each time. `blocks` are block numbers, the same for every layer. A buffer is a
contiguous tensor of bytes or of the layers' type; it holds block after block, each `staging_bytes(
layers, 1)` long, so that one block's bytes can be kept or dropped alone.

Every function checks its arguments before it writes anything and raises ValueError; an empty list
of blocks does nothing. Work on a GPU is put on the current stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Final, TypeAlias

import torch

from kernels import reference
from kernels.checks import block_list, check_buffer
from kernels.layers import KVLayers, prepare
from kernels.layout import Kind

Layers: TypeAlias = Sequence[torch.Tensor] | KVLayers
Blocks: TypeAlias = Sequence[int] | torch.Tensor

# The device memory that a swap takes for itself if none is handed to it.
STAGING_LIMIT: Final = 256 * 1024**2


def staging_bytes(layers: Layers, count: int, kind: Kind = "fused") -> int:
    """The bytes that `count` blocks of all layers take in a buffer."""
    if count < 0:
        raise ValueError(f"{count} blocks")
    return prepare(layers, kind).block_bytes * count


def gather_blocks(
    layers: Layers, blocks: Blocks, staging: torch.Tensor, kind: Kind = "fused"
) -> None:
    """Copy the blocks of all layers to the front of the staging buffer, in the list's order.

    The staging buffer is on the layers' device. A block may be named twice.
    """
    cache = prepare(layers, kind)
    chosen = block_list(blocks, cache.blocks, unique=False)
    if len(chosen):
        check_buffer(cache, len(chosen), staging, "staging", on=cache.device)
        _copies(cache).gather(cache, _on(cache.device, chosen), staging)


def scatter_blocks(
    staging: torch.Tensor, layers: Layers, blocks: Blocks, kind: Kind = "fused"
) -> None:
    """Copy the front of the staging buffer to the blocks of all layers: undoes `gather_blocks`.

    Blocks that are not in the list stay as they are. No block may be named twice.
    """
    cache = prepare(layers, kind)
    chosen = block_list(blocks, cache.blocks, unique=True)
    if len(chosen):
        check_buffer(cache, len(chosen), staging, "staging", on=cache.device)
        _copies(cache).scatter(cache, _on(cache.device, chosen), staging)


def swap_out(layers: Layers, blocks: Blocks, host: torch.Tensor, kind: Kind = "fused") -> None:
    """Copy the blocks to the front of a host buffer.

    From a GPU the buffer must be pinned, and holds the blocks when the current stream has come to
    this point: record an event, and wait for it before reading. The blocks themselves may be
    overwritten by whatever is put on the stream from now on.
    """
    cache = prepare(layers, kind)
    chosen = block_list(blocks, cache.blocks, unique=False)
    if not len(chosen):
        return
    check_buffer(cache, len(chosen), host, "host", on=torch.device("cpu"))
    if cache.device.type == "cpu":
        reference.gather(cache, chosen, host)
        return
    numbers, copies = _on(cache.device, chosen), _copies(cache)
    far, near = _bytes(host), _staging(cache, len(chosen))
    step = near.numel() // cache.block_bytes
    for first in range(0, len(chosen), step):
        part = numbers[first : first + step]
        size = len(part) * cache.block_bytes
        copies.gather(cache, part, near)
        far.narrow(0, first * cache.block_bytes, size).copy_(near[:size], non_blocking=True)


def swap_in(host: torch.Tensor, layers: Layers, blocks: Blocks, kind: Kind = "fused") -> None:
    """Copy the front of a host buffer to the blocks: undoes `swap_out`.

    To a GPU the buffer must be pinned, and stay as it is until the current stream has come to this
    point. No block may be named twice.
    """
    cache = prepare(layers, kind)
    chosen = block_list(blocks, cache.blocks, unique=True)
    if not len(chosen):
        return
    check_buffer(cache, len(chosen), host, "host", on=torch.device("cpu"))
    if cache.device.type == "cpu":
        reference.scatter(cache, chosen, host)
        return
    numbers, copies = _on(cache.device, chosen), _copies(cache)
    far, near = _bytes(host), _staging(cache, len(chosen))
    step = near.numel() // cache.block_bytes
    for first in range(0, len(chosen), step):
        part = numbers[first : first + step]
        size = len(part) * cache.block_bytes
        near[:size].copy_(far.narrow(0, first * cache.block_bytes, size), non_blocking=True)
        copies.scatter(cache, part, near)


def _copies(cache: KVLayers) -> ModuleType:
    return reference


def _on(device: torch.device, blocks: torch.Tensor) -> torch.Tensor:
    """The block numbers where the copy runs; without waiting for the device."""
    if device.type == "cpu":
        return blocks
    return blocks.pin_memory().to(device, non_blocking=True)


def _bytes(buffer: torch.Tensor) -> torch.Tensor:
    return buffer.view(-1).view(torch.uint8)


def _staging(cache: KVLayers, count: int) -> torch.Tensor:
    """Device memory for all blocks, or for as many as the limit allows, one at least."""
    room = max(1, min(count, STAGING_LIMIT // cache.block_bytes))
    return torch.empty(room * cache.block_bytes, dtype=torch.uint8, device=cache.device)
