"""One real stack for all tests of this folder: engines are slow to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.stack import Stack, in_flight, until


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    stack = Stack("--replicas", "2")
    yield stack
    assert stack.stop() == 0


@pytest.fixture(autouse=True)
def integrity(stack: Stack) -> Iterator[None]:
    """After every scenario: no call is open, and the table's invariants hold."""
    yield
    until(lambda: not in_flight(stack), "calls are still in flight")
    assert stack.violations() == []
