"""The gateway waits for a disk that is full."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from weft_gateway.runs.flow_runner import _has_room


def test_a_full_disk_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _has_room(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("weft_gateway.runs.flow_runner.os.fsync", full)
        assert not _has_room(tmp_path)
    assert list(tmp_path.iterdir()) == []
    # The next attempt finds the reason.
    assert _has_room(tmp_path / "missing")
