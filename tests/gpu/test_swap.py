"""Swaps on a real GPU give the same bits as plain torch, in one transfer or in many."""

from __future__ import annotations

import pytest
import torch
from support.kv_layers import DTYPES, ORDERS, Cache, make, random_bytes
from weft_kernels import reference
from weft_kernels.host import host_buffer
from weft_kernels.layers import prepare
from weft_kernels.swap import copies_for, swap_in, swap_out, warm_up

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

BLOCKS = [11, 3, 0, 7, 8, 2, 9]


def on_gpu(cache: Cache) -> Cache:
    """Return the layers in one piece of device memory, with the same layout."""
    storage = cache.layers[0].untyped_storage().cuda()
    layers = [
        torch.empty(0, dtype=x.dtype, device="cuda").set_(
            storage, x.storage_offset(), x.shape, x.stride()
        )
        for x in cache.layers
    ]
    return Cache(layers)


def invert(cache: Cache) -> None:
    for layer in cache.layers:
        layer.view(torch.uint8).bitwise_xor_(255)


def test_gpus_use_triton():
    assert copies_for(torch.device("cuda", 0)) is not reference


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ORDERS)
def test_gather_and_scatter_equal_plain_torch(layout, dtype):
    host = make(layout, blocks=12, dtype=dtype)
    cache = on_gpu(host)
    expected = host.expected(BLOCKS)
    staging = random_bytes(len(expected) + 64).cuda()
    behind = staging[len(expected) :].clone()
    layers, blocks = prepare(cache.layers), torch.tensor(BLOCKS).cuda()
    copies_for(layers.device).gather(layers, blocks, staging)
    assert torch.equal(staging[: len(expected)].cpu(), expected)
    assert torch.equal(staging[len(expected) :], behind)

    before = cache.bytes()
    invert(cache)
    copies_for(layers.device).scatter(layers, blocks, staging)
    for number, now in enumerate(cache.bytes()):
        assert torch.equal(now, before[number] if number in BLOCKS else before[number] ^ 255)


@pytest.mark.parametrize("limit", [1 << 20, 5000, 1], ids=["one", "halves", "single blocks"])
@pytest.mark.parametrize("layout", ["LBHNC", "BHLNC"])
def test_a_swap_through_any_staging_buffer(layout, limit):
    host = make(layout, blocks=12)
    cache = on_gpu(host)
    layers = prepare(cache.layers)
    buffer = torch.empty(len(BLOCKS) * layers.block_bytes, dtype=torch.uint8, pin_memory=True)
    before = cache.bytes()
    swap_out(layers, BLOCKS, buffer, staging_limit=limit)
    # Work on the stream after the swap, like an engine's step that reuses the blocks.
    invert(cache)
    torch.cuda.synchronize()
    assert torch.equal(buffer, host.expected(BLOCKS))
    swap_in(buffer, layers, BLOCKS, staging_limit=limit)
    for number, now in enumerate(cache.bytes()):
        assert torch.equal(now, before[number] if number in BLOCKS else before[number] ^ 255)


@pytest.mark.parametrize("wait", [True, False], ids=["waits", "beside"])
def test_repeated_big_swaps_keep_all_bytes(wait):
    """Use enough parts to detect a half of the staging buffer that is reused too early.

    Without `wait`, transfers to the host run in parallel to the current stream. The buffer has
    exactly the required size.
    """
    layers = [torch.randint(0, 256, (512, 8, 16, 256), dtype=torch.uint8).cuda() for _ in range(8)]
    prepared = prepare(layers)
    order = torch.randperm(512)
    buffer = host_buffer(512 * prepared.block_bytes, pinned=True)
    assert buffer.is_pinned()
    before = [layer.clone() for layer in layers]
    for _ in range(5):
        swap_out(prepared, order, buffer, staging_limit=1 << 21, wait=wait)
        for layer in layers:
            layer.zero_()
        event = swap_in(buffer, prepared, order, staging_limit=1 << 21, wait=wait)
        assert (event is None) == wait
        if event is not None:
            # Waits like a request whose KV is loaded in parallel to other steps.
            event.synchronize()
    assert all(map(torch.equal, before, layers))


def test_warm_up_compiles_the_kernels_of_a_swap():
    from weft_kernels.triton_swap import copy_runs

    cache = on_gpu(make(blocks=12))
    layers = prepare(cache.layers)
    before = cache.bytes()
    warm_up(layers)
    assert all(map(torch.equal, before, cache.bytes()))
    compiled = {device: len(found[0]) for device, found in copy_runs.device_caches.items()}
    buffer = host_buffer(len(BLOCKS) * layers.block_bytes, pinned=True)
    swap_out(layers, BLOCKS, buffer)
    swap_in(buffer, layers, BLOCKS)
    assert {d: len(found[0]) for d, found in copy_runs.device_caches.items()} == compiled


def test_memory_that_is_not_pinned_is_refused():
    cache = on_gpu(make())
    layers = prepare(cache.layers)
    buffer = torch.empty(layers.block_bytes, dtype=torch.uint8)
    with pytest.raises(ValueError, match="not pinned"):
        swap_out(layers, [0], buffer)
    with pytest.raises(ValueError, match="not pinned"):
        swap_in(buffer, layers, [0])
