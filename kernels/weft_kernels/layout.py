"""Byte layout of KV blocks in a layer's tensor.

vLLM gives each layer a logical tensor, `[blocks, heads, block, 2 * dim]` with key and value side by
side, and may permute its memory: block by block, head by head, or with the layers of a block side
by side (`vllm.v1.kv_cache_layout`). A copy needs only the distance between blocks and the runs of
contiguous bytes that make up a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """One layer's blocks in memory. Sizes are in bytes; offsets count from the tensor's start.

    Block `b` consists of runs of `run_bytes` at `b * block_stride + offset` for each offset in
    `runs`. The offsets ascend: a block's bytes are copied in memory order.
    """

    blocks: int
    block_bytes: int
    block_stride: int
    run_bytes: int
    runs: tuple[int, ...]


def layout_of(tensor: torch.Tensor) -> BlockLayout:
    """Return the layout of a layer's tensor, whose first axis is the block.

    Raises ValueError for a sparse tensor, a tensor without further axes, an empty block, and
    elements or blocks that overlap.
    """
    if tensor.layout is not torch.strided:
        raise ValueError(f"a layer must be a dense tensor, not {tensor.layout}")
    if tensor.ndim < 2:
        raise ValueError(f"a layer needs more axes than shape {tuple(tensor.shape)} has")
    item = tensor.element_size()
    axes = sorted(
        (stride * item, size)
        for size, stride in zip(tensor.shape[1:], tensor.stride()[1:], strict=True)
        if size != 1
    )
    if any(size == 0 for _, size in axes):
        raise ValueError(f"a block of shape {tuple(tensor.shape)} holds no bytes")
    run, extent = item, item
    outer: list[range] = []
    for stride, size in axes:
        if stride < extent:
            raise ValueError(f"elements of a block share memory: strides {tensor.stride()}")
        if stride == run and not outer:
            run *= size
        else:
            outer.append(range(0, stride * size, stride))
        extent = stride * (size - 1) + extent
    runs = tuple(sorted(sum(offsets) for offsets in product(*outer)))
    blocks, block_stride = tensor.shape[0], tensor.stride(0) * item
    if blocks > 1 and block_stride < run:
        raise ValueError(f"blocks share memory: {block_stride} bytes apart, runs of {run} bytes")
    return BlockLayout(blocks, run * len(runs), block_stride, run, runs)


@dataclass(frozen=True, slots=True)
class Span:
    """Runs of equal length at a constant distance: one run of every block of a layer."""

    start: int
    length: int
    stride: int
    count: int

    @property
    def end(self) -> int:
        """The address after the last run."""
        return self.start + (self.count - 1) * self.stride + self.length


def spans_of(tensor: torch.Tensor, layout: BlockLayout) -> list[Span]:
    """Return the memory of a layer's blocks: one span for each run of a block, by address."""
    start = tensor.data_ptr()
    return [
        Span(start + offset, layout.run_bytes, layout.block_stride, layout.blocks)
        for offset in layout.runs
    ]


def share_memory(spans: Sequence[Span]) -> bool:
    """Whether any two spans share a byte.

    Spans may interleave, as layers do if the block is the outermost axis. Interleaved spans with
    different strides count as sharing, because no cache has such a layout.
    """
    cluster: list[Span] = []
    end = 0
    for span in sorted((s for s in spans if s.count > 0), key=lambda s: s.start):
        if cluster and span.start >= end:
            if _collide(cluster):
                return True
            cluster = []
        end = max(end, span.end) if cluster else span.end
        cluster.append(span)
    return _collide(cluster)


def _collide(cluster: Sequence[Span]) -> bool:
    """Whether spans with overlapping extents share a byte in any period of their stride."""
    if len(cluster) < 2:
        return False
    stride = cluster[0].stride
    if stride <= 0 or any(span.stride != stride for span in cluster):
        return True
    origin = cluster[0].start
    phases = sorted(((span.start - origin) % stride, span.length) for span in cluster)
    ends = [phase + length for phase, length in phases]
    following = [phase for phase, _ in phases[1:]] + [stride + phases[0][0]]
    return any(end > start for end, start in zip(ends, following, strict=True))
