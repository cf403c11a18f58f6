"""A folder of files and batches that several stores use, as several gateways do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from weft_gateway.runs.batch_store import (
    Api,
    Batch,
    BatchStore,
    FolderError,
    Status,
    StoredFile,
    new_id,
)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[BatchStore, BatchStore]]:
    one, other = BatchStore(tmp_path / "data"), BatchStore(tmp_path / "data")
    yield one, other
    one.close()
    other.close()


def created(store: BatchStore) -> Batch:
    batch = Batch(new_id("batch_"), "t", Api.OPENAI, "/v1/x", new_id("file-"), "1h", 1, 3601)
    store.save(batch)
    return batch


def test_a_folder_has_one_owner_at_a_time(stores: tuple[BatchStore, BatchStore]) -> None:
    one, other = stores
    assert not one.owner
    assert one.own()
    assert one.own()
    assert not other.own()
    assert not other.owner
    one.close()
    assert other.own()


def test_changes_of_another_store_are_seen_once(stores: tuple[BatchStore, BatchStore]) -> None:
    one, other = stores
    assert one.changed()
    assert not one.changed()
    created(one)
    assert not one.changed()
    batch = created(other)
    assert one.changed()
    assert not one.changed()
    assert one.batch("t", Api.OPENAI, batch.id) == batch


def test_all_stores_show_a_cancelled_batch(stores: tuple[BatchStore, BatchStore]) -> None:
    one, other = stores
    batch = created(one)
    other.cancel(batch.id, 5.5)
    other.cancel(batch.id, 6.5)
    for store in stores:
        found = store.batch("t", Api.OPENAI, batch.id)
        assert found is not None
        assert (found.status, found.times) == (Status.CANCELLING, {"cancelling": 5})
        assert [each.status for each in store.unfinished()] == [Status.CANCELLING]
        assert list(store.batches("t", Api.OPENAI)) == [found]
    # The record of the owner replaces it.
    batch.status = Status.COMPLETED
    one.save(batch)
    assert other.batch("t", Api.OPENAI, batch.id) == batch
    other.delete_batch(batch.id)
    assert one.batch("t", Api.OPENAI, batch.id) is None


def test_a_sweep_keeps_what_other_processes_write(stores: tuple[BatchStore, BatchStore]) -> None:
    one, other = stores
    names = [new_id("file-") for _ in range(4)]
    for name in names:
        one.path(name).write_bytes(b"x")
    young, known, results, old = names
    other.add_file(StoredFile(known, "t", "a", "batch", 1, 1, 2))
    batch = created(other)
    batch.output_file = results
    other.save(batch)
    for name in (known, results, old):
        os.utime(one.path(name), (0, time.time() - 2 * 3600))
    one.sweep()
    assert [one.path(name).exists() for name in (young, known, results, old)] == [
        True, True, True, False,
    ]  # fmt: skip


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="WEFT_DATA_DIR"):
        BatchStore(tmp_path / "file")
