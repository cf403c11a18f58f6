"""Layouts of vLLM's layers, and of tensors that are not layers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from support.kv_layers import Cache, caches, make
from weft_kernels.layout import BlockLayout, Span, layout_of, share_memory, spans_of

B, H, N, C = 6, 2, 4, 16  # shape of `make`: blocks, heads, tokens, content
LAYERS = 3
PAGE = H * N * C * 2
HEAD = N * C * 2


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("LBHNC", BlockLayout(B, PAGE, PAGE, PAGE, (0,))),
        ("LBNHC", BlockLayout(B, PAGE, PAGE, PAGE, (0,))),
        ("LHBNC", BlockLayout(B, PAGE, HEAD, HEAD, (0, B * HEAD))),
        ("BLHNC", BlockLayout(B, PAGE, LAYERS * PAGE, PAGE, (0,))),
        ("BLNHC", BlockLayout(B, PAGE, LAYERS * PAGE, PAGE, (0,))),
        ("BHLNC", BlockLayout(B, PAGE, LAYERS * PAGE, HEAD, (0, LAYERS * HEAD))),
    ],
)
def test_layouts_of_vllm_are_recognised(layout, expected):
    cache = make(layout)
    assert layout_of(cache.layers[1]) == expected


@given(cache=caches())
def test_runs_cover_a_whole_block(cache: Cache):
    tensor = cache.layers[-1]
    layout = layout_of(tensor)
    start = tensor.storage_offset() * tensor.element_size()
    memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())[start:]
    for number in range(cache.blocks):
        begin = number * layout.block_stride
        runs = [memory[begin + run : begin + run + layout.run_bytes] for run in layout.runs]
        assert torch.equal(torch.cat(runs), cache.block(len(cache.layers) - 1, number))


def test_a_page_may_be_padded():
    padded = torch.zeros(5, 100)[:, :64].unflatten(1, (2, 4, 8))
    assert layout_of(padded) == BlockLayout(5, 256, 400, 256, (0,))


def test_elements_with_gaps_are_separate_runs():
    assert layout_of(torch.zeros(5, 6)[:, ::2]) == BlockLayout(5, 12, 24, 4, (0, 8, 16))


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.zeros(4), "more axes"),
        (torch.zeros(4, 2, 0), "holds no bytes"),
        (torch.zeros(4, 1, 8).expand(4, 3, 8), "elements of a block share memory"),
        (torch.zeros(1, 2, 8).expand(4, 2, 8), "blocks share memory"),
        (torch.zeros(4, 2, 8).to_sparse(), "dense"),
    ],
)
def test_tensors_that_are_not_layers_are_refused(tensor, message):
    with pytest.raises(ValueError, match=message):
        layout_of(tensor)


@given(cache=caches())
def test_layers_of_a_cache_do_not_share_memory(cache: Cache):
    spans = [s for x in cache.layers for s in spans_of(x, layout_of(x))]
    assert not share_memory(spans)
    # Any other view of the same bytes shares memory.
    assert share_memory([*spans, spans[-1]])


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (Span(0, 8, 8, 4), Span(32, 8, 8, 4), False),
        (Span(0, 8, 8, 4), Span(31, 8, 8, 4), True),
        (Span(0, 8, 16, 4), Span(8, 8, 16, 4), False),
        (Span(0, 8, 16, 4), Span(7, 8, 16, 4), True),
        (Span(8, 8, 16, 4), Span(0, 9, 16, 4), True),
        # The end of a period overlaps the beginning of the next one.
        (Span(0, 8, 16, 4), Span(12, 8, 16, 4), True),
        (Span(0, 8, 16, 4), Span(8, 8, 24, 4), True),
        (Span(0, 8, 16, 0), Span(0, 8, 16, 4), False),
    ],
)
def test_spans_share_memory_if_they_overlap(first, second, shared):
    assert share_memory([first, second]) is share_memory([second, first]) is shared
