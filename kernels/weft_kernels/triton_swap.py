"""Gather and scatter as one Triton launch over all blocks and layers.

The kernel moves raw words, so that copies of every type are exact bit for bit. Each program copies
one chunk of one run of contiguous bytes (`weft_kernels.layout`). It reads the run's address from a
table in device memory, so that one launch handles any layout and any number of layers.

The caller has checked the arguments; `weft_kernels.swap` documents them. This module imports
Triton.
"""

from __future__ import annotations

from contextlib import nullcontext
from math import gcd
from typing import Final

import torch
import triton
import triton.language as tl

from weft_kernels.layers import KVLayers

# Bytes that one program copies: four loads of 16 bytes in flight for each of 128 threads.
_CHUNK: Final = 8192
_WARPS: Final = 4


def gather(layers: KVLayers, blocks: torch.Tensor, staging: torch.Tensor) -> None:
    """Copy the blocks (int64, on the layers' device) to the front of the staging buffer."""
    _launch(layers, blocks, staging, to_staging=True)


def scatter(layers: KVLayers, blocks: torch.Tensor, staging: torch.Tensor) -> None:
    """Copy the front of the staging buffer to the blocks (int64, on the layers' device)."""
    _launch(layers, blocks, staging, to_staging=False)


def _launch(
    layers: KVLayers, blocks: torch.Tensor, staging: torch.Tensor, *, to_staging: bool
) -> None:
    aligned = gcd(layers.alignment, staging.data_ptr())
    word = min(aligned, 8)
    chunk = min(_CHUNK, triton.next_power_of_2(layers.longest_run))
    chunks = triton.cdiv(layers.longest_run, chunk)
    spans = len(layers.spans)
    # Triton launches on the current device, which may not be the tensors' device.
    with torch.cuda.device(staging.device) if staging.is_cuda else nullcontext():
        # Only the first axis of the grid allows more than 65,535 programs.
        copy_runs[(len(blocks) * spans * chunks,)](
            blocks, layers.table, staging.view(-1).view(torch.uint8), spans, chunks,
            layers.block_bytes, WORD=word, ALIGNED=aligned, WORDS=chunk // word,
            TO_STAGING=to_staging, num_warps=_WARPS,
        )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def copy_runs(  # type: ignore[no-untyped-def]  # Triton would look the names up
    blocks,
    table,
    staging,
    spans,
    chunks,
    block_bytes,
    WORD: tl.constexpr,
    ALIGNED: tl.constexpr,
    WORDS: tl.constexpr,
    TO_STAGING: tl.constexpr,
):
    """Copy chunk `program % chunks` of one run of one block to or from the staging buffer.

    `blocks`: int64 `[n]`. `table`: int64 `[spans, 4]`, see `KVLayers.table`. `staging`: bytes.
    WORD: bytes of one element: 8, 4, 2 or 1. ALIGNED: a power of two up to 16 that divides all
    addresses and lengths; at 16 the compiler moves two 8-byte words at once.
    """
    if WORD == 8:
        kind = tl.int64
    elif WORD == 4:
        kind = tl.int32
    elif WORD == 2:
        kind = tl.int16
    else:
        kind = tl.uint8
    program = tl.program_id(0)
    chunk = program % chunks
    span = (program // chunks) % spans
    number = program // chunks // spans
    row = table + span * 4
    block = tl.load(blocks + number)
    address = tl.load(row) + block * tl.load(row + 1)
    place = number.to(tl.int64) * block_bytes + tl.load(row + 2)
    # The compiler cannot know the alignment of addresses and lengths that come from memory, and
    # would move single words.
    run = tl.multiple_of(address.to(tl.pointer_type(kind)), ALIGNED)
    staged = tl.multiple_of((staging + place).to(tl.pointer_type(kind)), ALIGNED)
    words = tl.multiple_of((tl.load(row + 3) // WORD).to(tl.int32), ALIGNED // WORD)
    offsets = chunk * WORDS + tl.arange(0, WORDS)
    inside = offsets < words
    if TO_STAGING:
        tl.store(staged + offsets, tl.load(run + offsets, mask=inside), mask=inside)
    else:
        tl.store(run + offsets, tl.load(staged + offsets, mask=inside), mask=inside)
