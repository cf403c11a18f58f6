"""The plain torch copies equal torch's indexing."""

from __future__ import annotations

import torch
from hypothesis import given
from support.kv_layers import random_bytes, swaps
from weft_kernels import reference
from weft_kernels.layers import prepare


@given(swap=swaps())
def test_gather_copies_blocks_in_order_and_writes_nothing_after_them(swap):
    cache, blocks = swap
    layers = prepare(cache.layers)
    size = len(blocks) * layers.block_bytes
    before, staging = cache.bytes(), random_bytes(size + 9)
    behind = staging[size:].clone()
    reference.gather(layers, torch.tensor(blocks, dtype=torch.int64), staging)
    assert torch.equal(staging[:size], cache.expected(blocks))
    assert torch.equal(staging[size:], behind)
    assert all(map(torch.equal, before, cache.bytes()))


@given(swap=swaps())
def test_scatter_reverses_gather_and_keeps_other_blocks(swap):
    cache, blocks = swap
    layers = prepare(cache.layers)
    numbers = torch.tensor(blocks, dtype=torch.int64)
    staging = torch.empty(len(blocks) * layers.block_bytes, dtype=torch.uint8)
    before = cache.bytes()
    reference.gather(layers, numbers, staging)
    for layer in cache.layers:
        layer.view(torch.uint8).bitwise_xor_(255)
    reference.scatter(layers, numbers, staging)
    for number, now in enumerate(cache.bytes()):
        assert torch.equal(now, before[number] if number in blocks else before[number] ^ 255)
