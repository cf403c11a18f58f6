"""Layers are checked and described once."""

from __future__ import annotations

import pytest
import torch
from support.kv_layers import ORDERS, make
from weft_kernels.layers import KVLayers, prepare


@pytest.mark.parametrize("layout", ORDERS)
def test_the_table_lists_every_run_in_staging_order(layout):
    cache = make(layout)
    layers = prepare(cache.layers)
    assert layers.blocks == 6
    assert layers.block_bytes == 3 * 2 * 4 * 16 * 2
    starts, strides, staged, lengths = layers.table.T.tolist()
    assert staged == [sum(lengths[:i]) for i in range(len(lengths))]
    assert sum(lengths) == layers.block_bytes
    assert set(strides) == {layers.layouts[0].block_stride}
    tensors = {tensor.data_ptr() for tensor in cache.layers}
    assert tensors <= set(starts)


def test_layers_may_differ_in_shape():
    layers = prepare([torch.zeros(4, 2, 8, 16), torch.zeros(4, 1, 8, 16)])
    assert layers.block_bytes == (2 + 1) * 8 * 16 * 4
    assert layers.longest_run == 2 * 8 * 16 * 4


@pytest.mark.parametrize(("shape", "alignment"), [((4, 2, 16), 16), ((4, 1, 6), 8), ((4, 1, 5), 4)])
def test_alignment_divides_all_addresses_and_lengths(shape, alignment):
    assert prepare([torch.zeros(shape)]).alignment == alignment


def test_alignment_of_odd_bytes():
    raw = torch.zeros(4 * 32 + 1, dtype=torch.uint8)
    assert prepare([raw[1:].view(4, 2, 16)]).alignment == 1


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([], "no layer"),
        ([torch.zeros(4, 2, 8), torch.zeros(4, 2, 8, dtype=torch.float16)], "layer 1 is of"),
        ([torch.zeros(4, 2, 8), torch.zeros(5, 2, 8)], "layer 1 has 5 blocks, layer 0 4"),
        ([torch.zeros(4, 2, 8), torch.zeros(4, 2, 8, device="meta")], "layer 1 is on meta"),
        ([torch.zeros(4, 2, 8, device="meta")], "a CPU or a CUDA device is needed"),
        ([torch.zeros(4, 2, 8)] * 2, "share memory"),
    ],
)
def test_invalid_layers_are_refused(layers, message):
    with pytest.raises(ValueError, match=message):
        prepare(layers)


def test_layers_of_one_block_each_are_a_cache():
    assert isinstance(prepare([torch.zeros(1, 2, 8), torch.zeros(1, 2, 8)]), KVLayers)
