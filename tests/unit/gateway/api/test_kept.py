"""The memory budget for items that WebSockets keep."""

from __future__ import annotations

from weft_gateway.api.kept import Kept


class Socket:
    def __init__(self) -> None:
        self.forgot = 0

    def forget(self) -> None:
        self.forgot += 1


def test_tenant_over_its_budget_loses_its_oldest_items():
    kept, (one, two, three) = Kept(100, 10), (Socket(), Socket(), Socket())
    kept.keep("a", one, 4)
    kept.keep("a", two, 4)
    kept.keep("a", one, 5)  # This use makes it the younger one.
    kept.keep("b", three, 10)
    kept.keep("a", three, 4)
    assert (one.forgot, two.forgot, three.forgot) == (0, 1, 0)
    assert kept.total == 19


def test_largest_tenant_is_evicted_when_the_process_is_over_budget():
    kept, (small, one, two) = Kept(10, 8), (Socket(), Socket(), Socket())
    kept.keep("a", small, 2)
    kept.keep("b", one, 4)
    kept.keep("b", two, 4)
    kept.keep("a", small, 3)
    assert (small.forgot, one.forgot, two.forgot) == (0, 1, 0)
    assert kept.total == 7


def test_items_larger_than_the_budget_are_not_kept():
    kept, one = Kept(10, 5), Socket()
    kept.keep("a", one, 6)
    assert (one.forgot, kept.total) == (1, 0)


def test_released_items_free_their_budget():
    kept, (one, two) = Kept(10, 10), (Socket(), Socket())
    kept.keep("a", one, 10)
    kept.release("a", one)
    kept.release("a", one)
    kept.keep("b", two, 10)
    assert (one.forgot, two.forgot, kept.total) == (0, 0, 10)
