"""Plans of the connector, and the copies of its worker part."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec, UniformTypeKVCacheSpecs
from weft_engine.compat_kv import KVConnectorRole, block_key
from weft_engine.swap import connector as connector_module
from weft_engine.swap.connector import SwapConnector, SwapPlan

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


def layer_spec(heads: int = 4) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=BLOCK, num_kv_heads=heads, head_size=4, dtype=torch.float32)


def groups(*specs: Any, blocks: int = 12) -> Any:
    return SimpleNamespace(
        num_blocks=blocks,
        kv_cache_groups=[
            SimpleNamespace(kv_cache_spec=spec, layer_names=["one", "two"]) for spec in specs
        ],
    )


def vllm_config(slots: int = 8, **parallel: int) -> Any:
    sizes = {
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "decode_context_parallel_size": 1,
        **parallel,
    }
    return SimpleNamespace(
        kv_transfer_config=SimpleNamespace(
            kv_connector_extra_config={"swap_gib": slots * 2 * LAYER_BYTES / 2**30},
            is_kv_producer=True,
        ),
        cache_config=SimpleNamespace(block_size=BLOCK, prefix_match_unit=None),
        parallel_config=SimpleNamespace(**sizes),
    )


def connector(slots: int = 8, **parallel: int) -> SwapConnector:
    return SwapConnector(
        vllm_config(slots, **parallel), KVConnectorRole.SCHEDULER, groups(layer_spec())
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


def test_found_blocks_are_planned_into_the_right_places():
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


def test_requests_wait_for_asynchronous_loads_until_their_copies_are_made(monkeypatch):
    config = vllm_config()
    config.kv_transfer_config.kv_connector_extra_config["load_async"] = True
    swap = SwapConnector(config, KVConnectorRole.SCHEDULER, groups(layer_spec()))
    r, blocks = request(tokens=70, computed=64)
    assert swap.get_num_new_matched_tokens(r, 0) == (0, False)
    swap.save(r, blocks)
    swap.build_connector_meta(None)
    assert swap.get_num_new_matched_tokens(r, 0) == (64, True)
    swap.update_state_after_alloc(r, SimpleNamespace(get_block_ids=lambda: ([5, 6, 7, 8],)), 64)
    # vLLM says it once more when the request is scheduled, with nothing to load.
    swap.update_state_after_alloc(r, SimpleNamespace(get_block_ids=lambda: ([5, 6, 7, 8],)), 0)
    plan = swap.build_connector_meta(None)
    assert (len(plan.back), plan.loading) == (4, ["r"])

    class Event:
        done = False

        def query(self) -> bool:
            return self.done

    events = [Event(), Event()]
    made = iter(events)
    monkeypatch.setattr(connector_module, "swap_in", lambda *_, wait: None if wait else next(made))
    swap.register_kv_caches({name: torch.randn(12, 4, BLOCK, 8) for name in ("one", "two")})
    for name in ("r", "s"):
        swap.bind_connector_metadata(SwapPlan(back=[(5, 0)], loading=[name]))
        swap.start_load_kv(None)
    assert swap.get_finished(set()) == (None, None)
    events[0].done = True
    assert swap.get_finished(set()) == (None, {"r"})
    events[1].done = True
    assert swap.get_finished(set()) == (None, {"s"})


def test_the_next_step_does_not_wait_for_transfers_to_the_host(monkeypatch):
    waits = []
    monkeypatch.setattr(connector_module, "swap_out", lambda *_, wait=True: waits.append(wait))
    swap = connector()
    swap.register_kv_caches({name: torch.randn(12, 4, BLOCK, 8) for name in ("one", "two")})
    swap.handle_preemptions(SwapPlan(out=[(3, 0), (7, 4)]))
    assert waits == [False, False]


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_buffer_is_pinned_where_the_layers_are_on_a_gpu(monkeypatch, kind):
    asked: list[tuple[int, bool]] = []
    monkeypatch.setattr(
        connector_module, "host_buffer", lambda size, *, pinned: asked.append((size, pinned))
    )
    monkeypatch.setattr(connector_module, "warm_up", lambda layers: None)
    layers = SimpleNamespace(device=torch.device(kind), block_bytes=2 * LAYER_BYTES)
    monkeypatch.setattr(connector_module, "prepare", lambda tensors: layers)
    connector(slots=5).register_kv_caches({"one": torch.randn(12, 4, BLOCK, 8)})
    assert asked == [(5 * 2 * LAYER_BYTES, kind == "cuda")]


def test_the_buffer_has_exactly_the_bytes_of_its_slots_and_copies_are_compiled(monkeypatch):
    warmed = []
    monkeypatch.setattr(connector_module, "warm_up", warmed.append)
    swap = connector(slots=5)
    swap.register_kv_caches({name: torch.randn(12, 4, BLOCK, 8) for name in ("one", "two")})
    assert swap._host.untyped_storage().nbytes() == 5 * 2 * LAYER_BYTES
    assert warmed == [swap._layers]


def test_the_buffer_is_shared_by_the_workers_that_hold_a_part_of_each_block():
    assert connector(8, tensor_parallel_size=2).state()["slots"] == 4


def test_bytes_are_counted_over_all_workers():
    swap = connector(8, tensor_parallel_size=2)
    r, blocks = request(tokens=40, computed=32)
    swap.save(r, blocks)
    swap.build_connector_meta(None)
    assert swap.state()["bytes_out"] == 2 * swap.state()["swapped_out"] * 2 * LAYER_BYTES > 0


def test_layers_that_share_their_kv_are_copied_once():
    swap = connector()
    shared = torch.randn(12, 4, BLOCK, 8)
    swap.register_kv_caches({"one": shared, "two": torch.randn(12, 4, BLOCK, 8), "three": shared})
    assert swap._layers.block_bytes == 2 * LAYER_BYTES


KERNEL_LAYERS = ("one", "two")


def kernel_caches(block: int, kernel_block: int, blocks: int) -> dict[str, torch.Tensor]:
    """The arguments of `register_kv_caches` if the attention kernel splits each block, in the shape
    and memory order of vLLM's code. Each block has a different value."""
    from vllm.v1 import kv_cache_interface as vllm
    from vllm.v1.kv_cache_layout import KVCacheLayout

    spec = wide_spec(block)
    layout, count = KVCacheLayout["LBHNC"], len(KERNEL_LAYERS)
    strides = vllm.compute_layout_strides(spec, blocks, count, layout)
    size = count * blocks * spec.page_size_bytes
    place = vllm.KVCacheTensor(
        size=size, layers=list(KERNEL_LAYERS), layer_stride=strides[0], block_stride=strides[1]
    )
    raw = torch.zeros(size, dtype=torch.int8)
    views = vllm.create_kv_cache_views(raw, spec, blocks, layout, place, kernel_block)
    for layer, view in enumerate(views):
        ratio = view.shape[0] // blocks
        for part in range(view.shape[0]):
            view[part] = 100.0 * layer + part // ratio + 0.25 * (part % ratio)
    return dict(zip(KERNEL_LAYERS, views, strict=True))


def wide_spec(block: int) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=block, num_kv_heads=4, head_size=4, dtype=torch.float32)


@pytest.mark.parametrize("kernel_block", [128, 64, 32])
def test_the_blocks_of_the_scheduler_move_where_the_kernel_has_smaller_ones(kernel_block):
    """`--block-size 128` under a kernel of 64: vLLM registers twelve blocks for the scheduler's
    six. Restoring block 5 must leave block 2, half of which has the kernel's number 5, alone."""
    blocks = 6
    caches = kernel_caches(128, kernel_block, blocks)
    before = {name: cache.clone() for name, cache in caches.items()}
    swap = SwapConnector(
        vllm_config(), KVConnectorRole.WORKER, groups(wide_spec(128), blocks=blocks)
    )
    swap._count = 4
    swap.register_kv_caches(caches)
    assert swap._layers.blocks == blocks
    swap.handle_preemptions(SwapPlan(out=[(1, 0), (4, 1)]))
    for cache in caches.values():
        cache.fill_(-1.0)
    swap.bind_connector_metadata(SwapPlan(back=[(5, 0), (0, 1)]))
    swap.start_load_kv(None)
    ratio = 128 // kernel_block
    for name, cache in caches.items():
        whole = cache.unflatten(0, (blocks, ratio))
        was = before[name].unflatten(0, (blocks, ratio))
        assert torch.equal(whole[[5, 0]], was[[1, 4]])
        assert bool((whole[[1, 2, 3, 4]] == -1.0).all())


def test_layers_that_do_not_hold_the_scheduler_s_blocks_are_refused():
    swap = connector()
    with pytest.raises(ValueError, match="13 blocks, the scheduler 12"):
        swap.register_kv_caches({"one": torch.randn(13, 4, BLOCK, 8)})
    with pytest.raises(ValueError, match="a block of the layers has"):
        swap.register_kv_caches({"one": torch.randn(12, 4, 4 * BLOCK, 8)})


def uneven() -> UniformTypeKVCacheSpecs:
    return UniformTypeKVCacheSpecs(
        block_size=BLOCK, kv_cache_specs={"one": layer_spec(4), "two": layer_spec(2)}
    )


@pytest.mark.parametrize(
    ("config", "parallel", "reason"),
    [
        (groups(layer_spec(), layer_spec()), {}, "one group of layers; this model has 2"),
        (groups(uneven()), {}, "layers of one size"),
        (groups(layer_spec()), {"pipeline_parallel_size": 2}, "pipeline"),
    ],
)
def test_unsupported_models_are_refused_with_the_reason(config, parallel, reason):
    with pytest.raises(ValueError, match=reason):
        SwapConnector(vllm_config(**parallel), KVConnectorRole.SCHEDULER, config)
