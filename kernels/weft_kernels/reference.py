"""Gather and scatter in plain torch: the reference for the Triton kernels, and the path on CPUs.

The caller has checked the arguments; `weft_kernels.swap` documents them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

import torch

from weft_kernels.layers import KVLayers

_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


def gather(layers: KVLayers, blocks: torch.Tensor, staging: torch.Tensor) -> None:
    """Copy the blocks (int64, on the layers' device) to the front of the staging buffer."""
    for blocks_of_run, staged in _pairs(layers, len(blocks), staging):
        torch.index_select(blocks_of_run, 0, blocks, out=staged)


def scatter(layers: KVLayers, blocks: torch.Tensor, staging: torch.Tensor) -> None:
    """Copy the front of the staging buffer to the blocks (int64, on the layers' device)."""
    for blocks_of_run, staged in _pairs(layers, len(blocks), staging):
        blocks_of_run.index_copy_(0, blocks, staged)


def _pairs(
    layers: KVLayers, count: int, staging: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield views for each run of a block: layer `[blocks, words]` and staging `[count, words]`."""
    word = gcd(8, layers.alignment, staging.data_ptr())
    column = 0
    for tensor, layout in zip(layers.tensors, layers.layouts, strict=True):
        for offset in layout.runs:
            words = layout.run_bytes // word
            yield (
                _words(tensor, word, offset, (layout.blocks, words), layout.block_stride),
                _words(staging, word, column, (count, words), layers.block_bytes),
            )
            column += layout.run_bytes


def _words(
    tensor: torch.Tensor, word: int, offset: int, shape: tuple[int, int], stride: int
) -> torch.Tensor:
    """Return a view of a tensor's memory as rows of words: from `offset` bytes, `stride` apart."""
    start = tensor.storage_offset() * tensor.element_size() + offset
    view = torch.empty(0, dtype=_WORDS[word], device=tensor.device)
    return view.set_(tensor.untyped_storage(), start // word, shape, (stride // word, 1))
