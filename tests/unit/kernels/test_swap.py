"""The public functions on a CPU: round trips, and refused calls that write nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from support.kv_layers import make, random_bytes, swaps
from weft_kernels import reference
from weft_kernels.layers import prepare
from weft_kernels.swap import copies_for, swap_in, swap_out, warm_up


def bytes_of(cache, blocks):
    return prepare(cache.layers).block_bytes * blocks


def move(function, cache, blocks, buffer):
    """Call a public function; one takes the buffer first."""
    layers = prepare(cache.layers)
    if function is swap_out:
        swap_out(layers, blocks, buffer)
    else:
        swap_in(buffer, layers, blocks)


BOTH = [swap_out, swap_in]


@given(swap=swaps())
def test_blocks_come_back_to_other_places(swap):
    cache, blocks = swap
    buffer = torch.empty(bytes_of(cache, len(blocks)), dtype=torch.uint8)
    before = cache.bytes()
    move(swap_out, cache, blocks, buffer)
    # A resumed call gets other blocks than before.
    places = [(block + 1) % cache.blocks for block in blocks]
    move(swap_in, cache, places, buffer)
    came = dict(zip(places, blocks, strict=True))
    for number, now in enumerate(cache.bytes()):
        assert torch.equal(now, before[came.get(number, number)])


@pytest.mark.parametrize("function", BOTH)
def test_an_empty_list_of_blocks_does_nothing(function):
    cache = make()
    before = cache.bytes()
    move(function, cache, [], torch.empty(0, dtype=torch.uint8))
    assert all(map(torch.equal, before, cache.bytes()))


@pytest.mark.parametrize("function", BOTH)
@pytest.mark.parametrize(
    ("blocks", "missing", "message"),
    [
        ([2, 6], 0, "out of range"),
        ([2, -1], 0, "out of range"),
        ([2, 1], 1, "need"),
        ([2.0, 1.0], 0, "whole numbers"),
    ],
)
def test_bad_arguments_write_nothing(function, blocks, missing, message):
    cache = make(blocks=6)
    buffer = random_bytes(bytes_of(cache, 2) - missing)
    before, untouched = cache.bytes(), buffer.clone()
    with pytest.raises(ValueError, match=message):
        move(function, cache, blocks, buffer)
    assert torch.equal(buffer, untouched)
    assert all(map(torch.equal, before, cache.bytes()))


def test_no_block_is_written_twice():
    cache = make()
    before = cache.bytes()
    buffer = random_bytes(bytes_of(cache, 2))
    with pytest.raises(ValueError, match="block 3 is in the list twice"):
        move(swap_in, cache, [3, 3], buffer)
    assert all(map(torch.equal, before, cache.bytes()))


@pytest.mark.parametrize("function", BOTH)
def test_a_buffer_inside_the_cache_is_refused(function):
    cache = make()
    inside = cache.layers[0].view(torch.uint8).view(-1)
    with pytest.raises(ValueError, match="shares memory with layer 0"):
        move(function, cache, [0], inside)


@pytest.mark.parametrize("function", BOTH)
def test_a_buffer_on_another_device_is_refused(function):
    cache = make()
    elsewhere = torch.empty(bytes_of(cache, 1), dtype=torch.uint8, device="meta")
    with pytest.raises(ValueError, match="is on meta, it must be on cpu"):
        move(function, cache, [0], elsewhere)


def test_a_buffer_may_have_the_layers_type():
    cache = make(dtype=torch.float8_e4m3fn)
    buffer = torch.empty(bytes_of(cache, 1), dtype=torch.float8_e4m3fn)
    move(swap_out, cache, [4], buffer)
    assert torch.equal(buffer.view(torch.uint8), cache.expected([4]))


def test_cpus_use_plain_torch():
    assert copies_for(torch.device("cpu")) is reference


def test_a_warm_up_runs_both_copies_and_changes_nothing(monkeypatch):
    cache = make("BHLNC")
    before = cache.bytes()
    ran = []
    for name in ("gather", "scatter"):
        copy = getattr(reference, name)
        monkeypatch.setattr(
            reference, name, lambda *given, name=name, copy=copy: (ran.append(name), copy(*given))
        )
    warm_up(prepare(cache.layers))
    assert ran == ["gather", "scatter"]
    assert all(map(torch.equal, before, cache.bytes()))
