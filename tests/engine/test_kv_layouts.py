"""Layers in each of vLLM's memory orders, laid out by vLLM's code, through `kernels`."""

from __future__ import annotations

from math import prod

import pytest
import torch
from support.kv_layers import Cache, random_bytes
from weft_kernels.layers import prepare
from weft_kernels.swap import swap_in, swap_out

pytestmark = pytest.mark.engine

LAYERS, BLOCKS = 3, 6
ORDERS = ["LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"]


def views(order: str, kernel_block: int | None = None, padding: int = 0) -> list[torch.Tensor]:
    """Return the tensors for `register_kv_caches`, with kernel blocks of the given size."""
    from vllm.v1 import kv_cache_interface as vllm
    from vllm.v1.kv_cache_layout import KVCacheLayout

    plain = {"block_size": 32, "num_kv_heads": 2, "head_size": 8, "dtype": torch.bfloat16}
    page = vllm.FullAttentionSpec(**plain).page_size_bytes
    spec = vllm.FullAttentionSpec(**plain, page_size_padded=page + padding if padding else None)
    layout = KVCacheLayout[order]
    strides = vllm.compute_layout_strides(spec, BLOCKS, LAYERS, layout)
    size = LAYERS * BLOCKS * spec.page_size_bytes
    place = vllm.KVCacheTensor(
        size=size,
        layers=[f"layer.{i}" for i in range(LAYERS)],
        layer_stride=strides[0],
        block_stride=strides[1],
    )
    raw = random_bytes(size).view(torch.int8)
    made = vllm.create_kv_cache_views(raw, spec, BLOCKS, layout, place, kernel_block)
    return [vllm.group_kernel_blocks(view, BLOCKS) for view in made]


@pytest.mark.parametrize(
    ("order", "kernel_block", "padding"),
    [*((order, None, 0) for order in ORDERS), ("LBHNC", 16, 0), ("LBNHC", None, 64),
     ("BLHNC", None, 64)],
)  # fmt: skip
def test_blocks_go_and_come_back(order, kernel_block, padding):
    cache = Cache(views(order, kernel_block, padding))
    layers = prepare(cache.layers)
    assert layers.blocks == BLOCKS
    assert layers.block_bytes == LAYERS * prod((2, 32, 2 * 8)) * 2
    before, chosen = cache.bytes(), [5, 0, 3]
    buffer = torch.empty(3 * layers.block_bytes, dtype=torch.uint8)
    swap_out(layers, chosen, buffer)
    assert torch.equal(buffer, cache.expected(chosen))
    for layer in cache.layers:
        layer.view(torch.uint8).bitwise_xor_(255)
    swap_in(buffer, layers, chosen)
    for number, now in enumerate(cache.bytes()):
        assert torch.equal(now, before[number] if number in chosen else before[number] ^ 255)
