"""The budget for what WebSockets keep."""

from __future__ import annotations

from weft_gateway.api.kept import Kept


class Socket:
    def __init__(self) -> None:
        self.forgot = 0

    def forget(self) -> None:
        self.forgot += 1


def test_the_oldest_of_a_tenant_are_forgotten_beyond_its_budget():
    kept, (one, two, three) = Kept(100, 10), (Socket(), Socket(), Socket())
    kept.keep("a", one, 4)
    kept.keep("a", two, 4)
    kept.keep("a", one, 5)  # It is used again, and is the younger one now.
    kept.keep("b", three, 10)
    kept.keep("a", three, 4)
    assert (one.forgot, two.forgot, three.forgot) == (0, 1, 0)
    assert kept.total == 19


def test_the_tenant_that_keeps_most_makes_room_for_the_process():
    kept, (small, one, two) = Kept(10, 8), (Socket(), Socket(), Socket())
    kept.keep("a", small, 2)
    kept.keep("b", one, 4)
    kept.keep("b", two, 4)
    kept.keep("a", small, 3)
    assert (small.forgot, one.forgot, two.forgot) == (0, 1, 0)
    assert kept.total == 7


def test_what_is_larger_than_the_budget_is_not_kept():
    kept, one = Kept(10, 5), Socket()
    kept.keep("a", one, 6)
    assert (one.forgot, kept.total) == (1, 0)


def test_what_is_released_makes_room():
    kept, (one, two) = Kept(10, 10), (Socket(), Socket())
    kept.keep("a", one, 10)
    kept.release("a", one)
    kept.release("a", one)
    kept.keep("b", two, 10)
    assert (one.forgot, two.forgot, kept.total) == (0, 0, 10)
