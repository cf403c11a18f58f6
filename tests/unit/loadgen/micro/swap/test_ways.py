"""All methods move the same blocks: only their speed may differ."""

from __future__ import annotations

import pytest
import torch
from weft_bench.micro.swap.command import LIMIT, OURS
from weft_bench.micro.swap.ways import (
    PER_BLOCK,
    VLLM_BATCH,
    VLLM_TRITON,
    Shape,
    pool_blocks,
    scene,
    ways,
)

SMALL = Shape(layers=3, heads=2, head_dim=8, block_tokens=4)
BLOCKS = torch.tensor([4, 0, 5])


@pytest.fixture
def small():
    return scene(SMALL, 4, torch.device("cpu"))


def way(scene, name):
    return next(w for w in ways(scene, BLOCKS, {}) if w.name == name)


def test_the_default_is_an_8b_model():
    assert Shape().block_bytes == 2 * 1024**2


def test_the_scene_has_room_for_the_largest_swap_and_gaps(small):
    assert small.prepared.blocks == pool_blocks(4) > 4
    assert small.prepared.block_bytes == SMALL.block_bytes
    assert len(small.host) == len(small.flat) == 4 * SMALL.block_bytes
    blocks = {tuple(b.view(torch.uint8).view(-1).tolist()) for x in small.layers for b in x}
    assert len(blocks) == 3 * small.prepared.blocks


def test_weft_copies_out_the_same_bytes_as_a_copy_per_block(small):
    way(small, PER_BLOCK).out()
    expected = small.host.clone()
    assert expected.any()
    small.host.zero_()
    way(small, OURS).out()
    assert torch.equal(small.host, expected)


@pytest.mark.parametrize("name", [PER_BLOCK, OURS])
def test_blocks_are_restored(small, name):
    before = [layer.view(torch.int16).clone() for layer in small.layers]
    way(small, name).out()
    for layer in small.layers:
        layer[BLOCKS] = 0
    way(small, name).back()
    for layer, was in zip(small.layers, before, strict=True):
        assert torch.equal(layer.view(torch.int16), was)


def test_the_limit_is_one_copy_of_as_many_bytes(small):
    small.flat.fill_(7)
    way(small, LIMIT).out()
    assert (small.host == 7).sum() == 3 * SMALL.block_bytes


def test_methods_that_need_a_gpu_are_absent_with_a_reason(small):
    absent: dict[str, str] = {}
    assert [w.name for w in ways(small, BLOCKS, absent)] == [PER_BLOCK, OURS, LIMIT]
    assert absent == dict.fromkeys((VLLM_BATCH, VLLM_TRITON), "needs a GPU")
