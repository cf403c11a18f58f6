"""Memory bounds of the in-memory store. The contract suite tests the rest."""

from __future__ import annotations

from support.lineage import run
from weft_gateway.programs.lineage.marks import Entry, Mark, State
from weft_gateway.programs.lineage.memory import MemoryLineage

MARK = Mark("p", "main", State.RUNS, 1.0)


def put(store, tenant, *fingerprints, now=0.0, folds=()):
    mark = MARK._replace(at_s=now)
    run(store.put(tenant, [Entry(f, mark) for f in fingerprints], folds, now))


def known(store, tenant, *fingerprints, now=0.0):
    return set(run(store.get_many(tenant, fingerprints, now)).marks)


def test_store_is_bounded_and_keeps_used_entries():
    store = MemoryLineage(limit=100)
    for n in range(1000):
        put(store, "t", n)
        assert known(store, "t", 0) == {0}
        assert store.held <= 100
    assert known(store, "t", 999, 500) == {999}


def test_flooding_tenant_evicts_its_own_entries():
    store = MemoryLineage(limit=100)
    put(store, "small", *range(10))
    for n in range(0, 10_000, 30):
        put(store, "big", *range(n, n + 30))
    assert known(store, "small", *range(10)) == set(range(10))
    assert store.held <= 100


def test_unused_entries_and_empty_tenants_expire():
    store = MemoryLineage(keep_s=100.0)
    put(store, "t", 1, 2, folds=[("a", "b")])
    put(store, "t", 3, now=90.0)
    assert known(store, "t", 1, 2, 3, now=99.0) == {1, 2, 3}
    known(store, "t", 2, now=100.0)
    assert known(store, "t", 1, 2, 3, now=113.0) == {2, 3}
    assert store.root("t", "a") == "a"
    assert known(store, "other", 3, now=300.0) == set()
    assert store.held == 0
    assert store._shelves == {}


def test_cyclic_folds_end():
    store = MemoryLineage()
    put(store, "t", folds=[("a", "b"), ("b", "c")])
    assert store.root("t", "a") == "c"
    put(store, "t", folds=[("c", "a")])
    assert store.root("t", "a") in {"a", "b", "c"}
    assert store.root("other", "a") == "a"
