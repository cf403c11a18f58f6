"""Checks of the arguments of a copy, before it writes anything."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from weft_kernels.layers import KVLayers


def block_list(blocks: Sequence[int] | torch.Tensor, limit: int, *, unique: bool) -> torch.Tensor:
    """Return the block numbers as int64 `[n]` in host memory.

    A list on a GPU is copied to the host, which waits for the device. Raises ValueError for values
    that are not whole numbers, for numbers outside `[0, limit)`, and for duplicates if `unique`.
    """
    try:
        numbers = torch.as_tensor(blocks)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"blocks must be a list of whole numbers: {error}") from None
    if numbers.ndim != 1:
        raise ValueError(f"blocks must have one axis, not shape {tuple(numbers.shape)}")
    if numbers.numel() == 0:
        return torch.empty(0, dtype=torch.int64)
    if numbers.dtype.is_floating_point or numbers.dtype.is_complex or numbers.dtype is torch.bool:
        raise ValueError(f"block numbers must be whole numbers, not {numbers.dtype}")
    numbers = numbers.to("cpu", torch.int64)
    lowest, highest = (int(n) for n in torch.aminmax(numbers))
    if lowest < 0 or highest >= limit:
        wrong = lowest if lowest < 0 else highest
        raise ValueError(f"block {wrong} is out of range: each layer has {limit} blocks")
    if unique:
        ordered = numbers.sort().values
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(twice):
            raise ValueError(f"block {int(twice[0])} is in the list twice")
    return numbers


def check_buffer(
    layers: KVLayers, count: int, buffer: torch.Tensor, name: str, *, on: torch.device
) -> None:
    """Raise ValueError unless the buffer can hold `count` blocks of the layers.

    The buffer must be on the device `on`, contiguous, of bytes or of the layers' type, and long
    enough. It must not overlap the layers' memory. If the layers are on a GPU and the buffer is in
    host memory, it must be pinned.
    """
    if buffer.device != on:
        raise ValueError(f"{name} is on {buffer.device}, it must be on {on}")
    if buffer.dtype not in (torch.uint8, layers.dtype):
        raise ValueError(f"{name} is of {buffer.dtype}, it must be uint8 or {layers.dtype}")
    if not buffer.is_contiguous():
        raise ValueError(f"{name} is not contiguous: strides {buffer.stride()}")
    size, needed = buffer.numel() * buffer.element_size(), count * layers.block_bytes
    if size < needed:
        raise ValueError(f"{name} has {size} bytes, {count} blocks need {needed}")
    if buffer.device != layers.device:
        if layers.device.type == "cuda" and not buffer.is_pinned():
            raise ValueError(f"{name} is not pinned: the transfer would be slow and in pieces")
        return
    start = buffer.data_ptr()
    for i, (first, end) in enumerate(layers.extent):
        if start < end and first < start + size:
            raise ValueError(f"{name} shares memory with layer {i}")
