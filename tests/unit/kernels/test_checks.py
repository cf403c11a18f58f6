"""Invalid block lists and buffers are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.kv_layers import make
from weft_kernels.checks import block_list, check_buffer
from weft_kernels.layers import prepare

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "blocks",
    [[3, 0, 7], (3, 0, 7), torch.tensor([3, 0, 7]), torch.tensor([3, 0, 7], dtype=torch.int32),
     np.array([3, 0, 7])],
    ids=["list", "tuple", "int64", "int32", "numpy"],
)  # fmt: skip
def test_a_block_list_has_many_forms(blocks):
    found = block_list(blocks, 8, unique=True)
    assert found.dtype is torch.int64
    assert found.tolist() == [3, 0, 7]


@pytest.mark.parametrize("blocks", [[], torch.empty(0), torch.empty(0, dtype=torch.int32)], ids=str)
def test_an_empty_list_is_valid(blocks):
    assert block_list(blocks, 0, unique=True).tolist() == []


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([0, -1], "block -1 is out of range: each layer has 8 blocks"),
        ([0, 8], "block 8 is out of range"),
        ([2**70], "must be a list of whole numbers"),
        (["a"], "must be a list of whole numbers"),
        ([None], "must be a list of whole numbers"),
        ([1.0], "whole numbers, not torch.float32"),
        ([True], "whole numbers, not torch.bool"),
        ([[1, 2]], "not shape"),
        (torch.tensor(3), "not shape"),
        ([1, 2, 1], "block 1 is in the list twice"),
    ],
)
def test_invalid_block_lists_are_refused(blocks, message):
    with pytest.raises(ValueError, match=message):
        block_list(blocks, 8, unique=True)


def test_a_block_may_be_read_twice():
    assert block_list([1, 1], 8, unique=False).tolist() == [1, 1]


LAYERS = prepare(make(dtype=torch.float16).layers)
ROOM = 2 * LAYERS.block_bytes


@pytest.mark.parametrize(
    "buffer",
    [torch.empty(ROOM, dtype=torch.uint8), torch.empty(ROOM, dtype=torch.float16),
     torch.empty(2, LAYERS.block_bytes, dtype=torch.uint8)],
    ids=["bytes", "the layers' type", "rows"],
)  # fmt: skip
def test_large_enough_buffers_are_accepted(buffer):
    check_buffer(LAYERS, 2, buffer, "host", on=CPU)


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        (torch.empty(ROOM - 1, dtype=torch.uint8), f"host has {ROOM - 1} bytes, 2 blocks need"),
        (torch.empty(ROOM, dtype=torch.float32), "must be uint8 or torch.float16"),
        (torch.empty(2 * ROOM, dtype=torch.uint8)[::2], "not contiguous"),
        (torch.empty(ROOM, dtype=torch.uint8, device="meta"), "must be on cpu"),
    ],
)
def test_invalid_buffers_are_refused(buffer, message):
    with pytest.raises(ValueError, match=message):
        check_buffer(LAYERS, 2, buffer, "host", on=CPU)


@pytest.mark.parametrize("end", ["front", "back"])
def test_a_buffer_in_the_layers_memory_is_refused(end):
    raw = torch.zeros(64 * 1024, dtype=torch.uint8)
    layer = raw[4096:8192].view(8, 2, 256)
    layers = prepare([layer])
    apart = raw[:4096] if end == "front" else raw[8192:]
    check_buffer(layers, 2, apart, "staging", on=CPU)
    touching = raw[1:4097] if end == "front" else raw[8191:]
    with pytest.raises(ValueError, match="staging shares memory with layer 0"):
        check_buffer(layers, 2, touching, "staging", on=CPU)
