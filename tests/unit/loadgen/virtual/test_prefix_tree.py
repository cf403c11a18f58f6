"""A global prefix tree, for the comparison of balancers."""

from __future__ import annotations

from random import Random

from weft_bench.virtual.front import Front
from weft_bench.virtual.prefix_tree import PrefixTree
from weft_bench.workloads.schema import Part

_SYSTEM = Part("system", 100)


def _prompt(*names: str) -> tuple[Part, ...]:
    return (_SYSTEM, *(Part(name, 100) for name in names))


def test_prompt_goes_to_the_replica_with_its_longest_prefix() -> None:
    tree = PrefixTree({"a": 10_000, "b": 10_000, "c": 10_000})
    assert tree.away(_prompt("x")) == frozenset()
    tree.sent("a", _prompt("x", "y"))
    tree.sent("b", _prompt("x"))
    assert tree.away(_prompt("x", "y", "z")) == {"b", "c"}
    assert tree.away(_prompt("x", "w")) == {"c"}


def test_prefix_must_exceed_half_of_the_prompt() -> None:
    tree = PrefixTree({"a": 10_000, "b": 10_000})
    tree.sent("a", _prompt("x"))
    assert tree.away(_prompt("y")) == frozenset()
    assert tree.away(_prompt("x", "y")) == {"b"}


def test_equal_parts_after_different_ones_are_no_prefix() -> None:
    tree = PrefixTree({"a": 10_000, "b": 10_000})
    tree.sent("a", _prompt("x", "y", "z"))
    assert tree.away((Part("other", 10), *_prompt("x", "y", "z"))) == frozenset()


def test_least_recently_used_prefix_is_evicted_from_its_end() -> None:
    tree = PrefixTree({"a": 400, "b": 400})
    tree.sent("a", _prompt("x", "y"))
    tree.sent("a", _prompt("u", "v"))
    # "y" is evicted. "x" stays, with the system prompt that both prompts share.
    assert tree.away(_prompt("x", "y", "z")) == frozenset()
    assert tree.away(_prompt("x")) == {"b"}
    assert tree.away(_prompt("u", "v", "w")) == {"b"}


def test_front_with_a_tree_chooses_among_replicas_with_the_prefix() -> None:
    tree = PrefixTree({"a": 10_000, "b": 10_000})
    gate = Front(("a", "b"), "least_used", Random(0), tree=tree)
    first, _ = gate.place("p", "0", "p/0", 300, 0.0, parts=_prompt("x", "y"))
    again, _ = gate.place("q", "0", "q/0", 400, 0.0, parts=_prompt("x", "y", "z"))
    other, _ = gate.place("r", "0", "r/0", 400, 0.0, parts=(Part("another", 400),))
    assert again == first
    assert other != first
