"""Description of the layers of one KV cache: checked once, used for every swap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd

import torch

from weft_kernels.layout import BlockLayout, Span, layout_of, share_memory, spans_of


@dataclass(frozen=True, eq=False)
class KVLayers:
    """Layers that share one numbering of blocks. Use `prepare` to create it.

    A staged block holds the block's bytes of every layer, layer after layer, `block_bytes` in
    total. Staged blocks follow each other without gaps.
    """

    tensors: tuple[torch.Tensor, ...]
    layouts: tuple[BlockLayout, ...]

    @cached_property
    def device(self) -> torch.device:
        """The layers' device."""
        return self.tensors[0].device

    @cached_property
    def dtype(self) -> torch.dtype:
        """The layers' common type."""
        return self.tensors[0].dtype

    @cached_property
    def blocks(self) -> int:
        """Number of blocks in each layer."""
        return self.layouts[0].blocks

    @cached_property
    def block_bytes(self) -> int:
        """Bytes of one block in all layers together."""
        return sum(layout.block_bytes for layout in self.layouts)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The memory of the blocks in staging order: by layer, then by run of a block."""
        return tuple(
            span
            for tensor, layout in zip(self.tensors, self.layouts, strict=True)
            for span in spans_of(tensor, layout)
        )

    @cached_property
    def extent(self) -> tuple[tuple[int, int], ...]:
        """Address range of each layer: the first address and one past the last."""
        return tuple(
            (tensor.data_ptr(), max(span.end for span in spans_of(tensor, layout)))
            for tensor, layout in zip(self.tensors, self.layouts, strict=True)
        )

    @cached_property
    def longest_run(self) -> int:
        """Bytes of the longest run of a block."""
        return max(layout.run_bytes for layout in self.layouts)

    @cached_property
    def alignment(self) -> int:
        """The largest power of two, at most 16, that divides every address and every length."""
        numbers = [n for s in self.spans for n in (s.start, s.length, s.stride)]
        return gcd(16, *numbers)

    @cached_property
    def table(self) -> torch.Tensor:
        """The spans as a table on the device, for a kernel: `[spans, 4]` int64.

        Columns: address of the first run, distance between runs, offset of the run in a staged
        block, and length of the run. All are in bytes.
        """
        rows, staged = [], 0
        for span in self.spans:
            rows.append((span.start, span.stride, staged, span.length))
            staged += span.length
        return torch.tensor(rows, dtype=torch.int64).to(self.device)


def prepare(layers: Sequence[torch.Tensor]) -> KVLayers:
    """Check the layers and describe them for the functions of `weft_kernels.swap`.

    The result keeps the tensors alive and stays valid until one of them is resized. Raises
    ValueError if no layer is given, if the layers are on neither a CPU nor a CUDA device, if they
    differ in device, type or number of blocks, if two of them share memory, and in the cases that
    `layout_of` lists.
    """
    tensors = tuple(layers)
    if not tensors:
        raise ValueError("no layer given")
    first = tensors[0]
    if first.device.type not in ("cpu", "cuda"):
        raise ValueError(f"layers are on {first.device}; a CPU or a CUDA device is needed")
    for i, tensor in enumerate(tensors):
        if tensor.device != first.device:
            raise ValueError(f"layer {i} is on {tensor.device}, layer 0 on {first.device}")
        if tensor.dtype != first.dtype:
            raise ValueError(f"layer {i} is of {tensor.dtype}, layer 0 of {first.dtype}")
    prepared = KVLayers(tensors, tuple(layout_of(tensor) for tensor in tensors))
    for i, layout in enumerate(prepared.layouts):
        if layout.blocks != prepared.blocks:
            raise ValueError(f"layer {i} has {layout.blocks} blocks, layer 0 {prepared.blocks}")
    if share_memory(prepared.spans):
        raise ValueError("layers or blocks share memory")
    return prepared
