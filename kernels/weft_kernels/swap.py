"""Move KV blocks between their places in the cache and one contiguous buffer.

Agentix (section 4.2.2) gathers a preempted call's blocks into one buffer and moves it in a single
transfer, instead of one transfer for each block and layer.

`layers` describe a cache's tensors (`weft_kernels.layers.prepare`). `blocks` are block numbers, the
same for every layer. A buffer is a contiguous tensor of bytes or of the layers' type. It holds
block after block, each `layers.block_bytes` long, so that one block's bytes can be kept or dropped
alone.

Every function checks its arguments before it writes anything and raises ValueError. An empty list
of blocks does nothing. Work on a GPU goes to the current stream.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Final, TypeAlias

import torch

from weft_kernels import reference, transfer
from weft_kernels.checks import block_list, check_buffer
from weft_kernels.layers import KVLayers
from weft_kernels.transfer import STAGING_LIMIT, Copies

Blocks: TypeAlias = Sequence[int] | torch.Tensor

_CPU: Final = torch.device("cpu")


def swap_out(
    layers: KVLayers,
    blocks: Blocks,
    host: torch.Tensor,
    *,
    staging_limit: int = STAGING_LIMIT,
    wait: bool = True,
) -> None:
    """Copy the blocks to the front of a host buffer.

    If the layers are on a GPU, the buffer must be pinned. It holds the blocks once the current
    stream has reached this point: record an event, and wait for it before you read. Later work on
    the stream may overwrite the blocks. With `wait=False` the current stream waits only for the
    gathering; the transfer runs in parallel, and a later `swap_in` from the same buffer waits for
    it. `staging_limit` bounds the device memory (bytes) for staging, except that two blocks always
    fit. A swap within the limit takes one transfer.
    """
    chosen = block_list(blocks, layers.blocks, unique=False)
    if not len(chosen):
        return
    check_buffer(layers, len(chosen), host, "host", on=_CPU)
    if layers.device == _CPU:
        reference.gather(layers, chosen, host)
    else:
        numbers, far = _on(layers.device, chosen), host.view(-1).view(torch.uint8)
        copies = copies_for(layers.device)
        transfer.swap_out(layers, numbers, far, copies, staging_limit, wait=wait)


def swap_in(
    host: torch.Tensor,
    layers: KVLayers,
    blocks: Blocks,
    *,
    staging_limit: int = STAGING_LIMIT,
    wait: bool = True,
) -> torch.cuda.Event | None:
    """Copy the front of a host buffer to the blocks: undoes `swap_out`.

    If the layers are on a GPU, the buffer must be pinned and must not change until the current
    stream has reached this point. The list must not contain a block twice. `staging_limit` is as in
    `swap_out`. With `wait=False` the current stream continues at once, and the returned event is
    reached when the blocks are in place; None means that they are in place already.
    """
    chosen = block_list(blocks, layers.blocks, unique=True)
    if not len(chosen):
        return None
    check_buffer(layers, len(chosen), host, "host", on=_CPU)
    if layers.device == _CPU:
        reference.scatter(layers, chosen, host)
        return None
    numbers, far = _on(layers.device, chosen), host.view(-1).view(torch.uint8)
    copies = copies_for(layers.device)
    return transfer.swap_in(layers, numbers, far, copies, staging_limit, wait=wait)


def warm_up(layers: KVLayers) -> None:
    """Compile the kernels for these layers and wait, so that the first swap does not have to.

    Copies the first block to a staging buffer and back, which changes nothing.
    """
    copies, first = copies_for(layers.device), torch.zeros(1, dtype=torch.int64)
    blocks = _on(layers.device, first)
    staging = torch.empty(layers.block_bytes, dtype=torch.uint8, device=layers.device)
    copies.gather(layers, blocks, staging)
    copies.scatter(layers, blocks, staging)
    if layers.device != _CPU:
        torch.cuda.synchronize(layers.device)


@cache
def copies_for(device: torch.device) -> Copies:
    """Return the Triton kernels for a GPU, and plain torch for a CPU.

    Without Triton, a GPU gets plain torch as well, with a warning.
    """
    if device.type == "cuda":
        try:
            from weft_kernels import triton_swap
        except ImportError as error:
            warnings.warn(f"KV swaps run without Triton, which is slower: {error}", stacklevel=2)
        else:
            return triton_swap
    return reference


def _on(device: torch.device, blocks: torch.Tensor) -> torch.Tensor:
    """Return the block numbers on the device of the copy, without waiting for the device."""
    return blocks if device == _CPU else blocks.pin_memory().to(device, non_blocking=True)
