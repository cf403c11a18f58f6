"""One real stack for all tests of this folder, because engines start slowly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.stack import Stack, end_programs, in_flight, until


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    stack = Stack("--replicas", "2")
    yield stack
    assert stack.stop() == 0


@pytest.fixture(autouse=True)
def integrity(stack: Stack) -> Iterator[None]:
    """Check after every test that no call is open, the table's invariants hold, and no unnamed
    program remains.
    """
    yield
    until(lambda: not in_flight(stack), "calls are still in flight")
    assert stack.violations() == []
    assert end_programs(stack.url) == 0
