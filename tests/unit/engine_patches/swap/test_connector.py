"""What the connector plans, and what its worker's half moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch

from engine_patches.compat import KVConnectorRole, block_key
from engine_patches.swap.connector import SwapConnector, SwapPlan

BLOCK = 16
# Two layers of 4 heads, 16 tokens, 8 numbers of 4 bytes.
LAYER_BYTES = 4 * BLOCK * 8 * 4


@dataclass
class Block:
    block_id: int
    block_hash: Any = None


@dataclass
class Request:
    request_id: str
    num_computed_tokens: int
    num_tokens: int
    block_hashes: list[bytes] = field(default_factory=list)
    cache_salt: str | None = None


def connector(slots: int = 8) -> SwapConnector:
    gib = slots * 2 * LAYER_BYTES / 2**30
    config = SimpleNamespace(
        kv_transfer_config=SimpleNamespace(
            kv_connector_extra_config={"swap_gib": gib}, is_kv_producer=True
        ),
        cache_config=SimpleNamespace(block_size=BLOCK),
    )
    spec = SimpleNamespace(page_size_bytes=LAYER_BYTES)
    group = SimpleNamespace(kv_cache_spec=spec, layer_names=["one", "two"])
    return SwapConnector(
        config, KVConnectorRole.SCHEDULER, SimpleNamespace(kv_cache_groups=[group])
    )


def request(tokens: int, computed: int) -> tuple[Request, list[Block]]:
    hashes = [bytes([number]) * 32 for number in range(tokens // BLOCK)]
    blocks = [Block(10 + number, block_key(hash_)) for number, hash_ in enumerate(hashes)]
    blocks.append(Block(10 + len(hashes)))
    return Request("r", computed, tokens, hashes), blocks


def test_full_computed_blocks_are_saved_and_found_beyond_what_is_cached():
    swap = connector()
    r, blocks = request(tokens=70, computed=50)
    assert swap.save(r, blocks) == 3
    assert [block for block, _ in swap.build_connector_meta(None).out] == [10, 11, 12]
    assert swap.get_num_new_matched_tokens(r, 0) == (48, False)
    assert swap.get_num_new_matched_tokens(r, 16) == (32, False)


def test_the_last_token_is_always_computed():
    swap = connector()
    r, blocks = request(tokens=48, computed=48)
    swap.save(r, blocks)
    assert swap.get_num_new_matched_tokens(r, 0) == (32, False)


def test_what_is_found_is_planned_into_the_right_blocks():
    swap = connector()
    r, blocks = request(tokens=70, computed=64)
    swap.save(r, blocks)
    slots = [slot for _, slot in swap.build_connector_meta(None).out]
    swap.get_num_new_matched_tokens(r, 16)
    given = SimpleNamespace(get_block_ids=lambda: ([5, 6, 7, 8, 9],))
    swap.update_state_after_alloc(r, given, 48)
    assert swap.build_connector_meta(None) == SwapPlan(
        [], [(6, slots[1]), (7, slots[2]), (8, slots[3])]
    )
    assert swap.loaded == {"r": 3}


def test_nothing_is_planned_where_vllm_takes_nothing():
    swap = connector()
    r, blocks = request(tokens=70, computed=64)
    swap.save(r, blocks)
    swap.build_connector_meta(None)
    swap.get_num_new_matched_tokens(r, 0)
    swap.update_state_after_alloc(r, SimpleNamespace(get_block_ids=lambda: ([5],)), 0)
    assert swap.build_connector_meta(None) == SwapPlan()


def test_a_request_that_ends_leaves_nothing():
    swap = connector()
    r, blocks = request(tokens=70, computed=64)
    swap.save(r, blocks)
    swap.forget("r")
    assert swap.state()["used"] == 0
    assert swap.get_num_new_matched_tokens(r, 0) == (0, False)
    assert swap.violations() == []


def test_an_emptied_cache_empties_the_buffer_and_the_plan():
    swap = connector()
    r, blocks = request(tokens=70, computed=64)
    swap.save(r, blocks)
    assert swap.reset_cache()
    assert swap.build_connector_meta(None) == SwapPlan()
    assert swap.state()["used"] == 0


def test_blocks_go_out_and_come_back_to_other_places():
    swap = connector()
    layers = {name: torch.randn(12, 4, BLOCK, 8) for name in ("one", "two")}
    before = {name: layer.clone() for name, layer in layers.items()}
    swap.register_kv_caches(layers)
    swap.handle_preemptions(SwapPlan(out=[(3, 0), (1, 1), (7, 4)]))
    for layer in layers.values():
        layer[[1, 3, 7]] = 0.0
    swap.bind_connector_metadata(SwapPlan(back=[(8, 0), (9, 1), (7, 4)]))
    swap.start_load_kv(None)
    for name, layer in layers.items():
        assert torch.equal(layer[[8, 9, 7]], before[name][[3, 1, 7]])
        assert torch.equal(layer[[0, 2, 4, 5]], before[name][[0, 2, 4, 5]])


def test_a_model_of_several_groups_is_refused_with_the_reason():
    from engine_patches.compat import bytes_per_block

    with pytest.raises(ValueError, match="2"):
        bytes_per_block(SimpleNamespace(kv_cache_groups=[1, 2]))
