"""Transfers of KV blocks on the emulated link."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from weft_engine.emulated.transfers import Block, Link, Offloads, Swaps, transfers_of

pytestmark = pytest.mark.engine

BLOCK = Block(seconds=0.1, size=1000)


@pytest.fixture
def moved() -> list[int]:
    return []


def step(**plan):
    return SimpleNamespace(kv_connector_metadata=SimpleNamespace(**plan))


def swap(out=0, back=0, loading=()):
    return step(out=[(0, 0)] * out, back=[(0, 0)] * back, loading=list(loading))


def job(request, source=0, target=0):
    specs = [SimpleNamespace(block_ids=[0] * count) for count in (source, target)]
    return SimpleNamespace(req_id=request, src_spec=specs[0], dst_spec=specs[1])


def offload(stores=None, loads=None, flush=None):
    return step(store_jobs=stores or {}, load_jobs=loads or {}, jobs_to_flush=flush)


def offloads(moved):
    return Offloads(Link(BLOCK, moved.append), Link(BLOCK, moved.append))


def jobs_of(output):
    return set(output.kv_connector_worker_meta.completed_jobs)


def test_a_step_waits_for_swaps_in_both_directions(moved):
    swaps = Swaps(Link(BLOCK, moved.append), moved.append)
    assert swaps.begin(swap(out=3, back=2), 10.0).blocks == 5
    assert swaps.finished(10.0) is None
    assert moved == [5]


def test_asynchronous_swaps_delay_only_their_requests(moved):
    swaps = Swaps(Link(BLOCK, moved.append), moved.append)
    assert swaps.begin(swap(out=3, back=2, loading=["a"]), 10.0).blocks == 3
    assert swaps.begin(swap(back=1, loading=["b"]), 10.0).blocks == 0
    assert swaps.finished(10.1) is None
    assert swaps.finished(10.25).finished_recving == {"a"}
    assert swaps.finished(10.35).finished_recving == {"b"}
    assert sum(moved) == 6


def test_loads_run_beside_the_steps(moved):
    transfers = offloads(moved)
    assert transfers.begin(offload(loads={1: job("a", target=5)}), 10.0).ready_at == 0
    assert transfers.finished(10.4) is None
    ended = transfers.finished(10.6)
    assert (ended.finished_recving, jobs_of(ended)) == ({"a"}, {1})
    assert transfers.finished(10.7) is None


def test_a_store_begins_after_the_step_that_computes_its_blocks(moved):
    transfers = offloads(moved)
    transfers.begin(offload(stores={1: job("a", source=5)}), 10.0)
    assert transfers.finished(20.0) is None
    transfers.begin(offload(), 20.0)
    assert transfers.finished(20.4) is None
    ended = transfers.finished(20.6)
    assert (ended.finished_recving, jobs_of(ended)) == (None, {1})


def test_a_step_waits_for_stores_of_the_blocks_that_it_overwrites(moved):
    transfers = offloads(moved)
    transfers.begin(offload(stores={1: job("a", source=5)}), 10.0)
    moves = transfers.begin(offload(stores={2: job("b", source=5)}, flush={1, 2}), 11.0)
    assert moves.ready_at == pytest.approx(12.0)
    assert jobs_of(transfers.finished(12.1)) == {1, 2}


def test_directions_do_not_share_the_link(moved):
    transfers = offloads(moved)
    transfers.begin(offload(stores={1: job("a", source=5)}), 9.0)
    transfers.begin(offload(loads={2: job("b", target=5)}), 10.0)
    assert jobs_of(transfers.finished(10.6)) == {1, 2}


def test_other_connectors_are_refused():
    kinds = {}
    for name in (None, "SwapConnector", "OffloadingConnector"):
        config = SimpleNamespace(kv_connector=name)
        kinds[name] = type(transfers_of(config, BLOCK, lambda _: None)).__name__
    assert list(kinds.values()) == ["NoTransfers", "Swaps", "Offloads"]
    with pytest.raises(ValueError, match="NixlConnector"):
        transfers_of(SimpleNamespace(kv_connector="NixlConnector"), BLOCK, lambda _: None)


def test_vllm_counts_the_bytes_and_seconds_of_both_directions(moved):
    transfers = offloads(moved)
    transfers.begin(offload(stores={1: job("a", source=5)}, flush={1}), 10.0)
    transfers.begin(offload(loads={2: job("b", target=2)}), 10.0)
    stats = transfers.finished(11.0).kv_connector_worker_meta.transfer_stats
    assert (stats.store.bytes, stats.store.time) == (5000, pytest.approx(0.5))
    assert (stats.load.bytes, stats.load.time) == (2000, pytest.approx(0.2))
