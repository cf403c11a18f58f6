"""Fixtures for tests on vLLM's own scheduler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """A maker of engines, once with and once without async scheduling."""
    from harness import make_engine

    def make(**options: Any) -> Any:
        return make_engine(tmp_path, async_scheduling=request.param, **options)

    return make
