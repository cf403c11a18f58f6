"""The templated radix tree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_bench.planner.calls import Slot
from weft_bench.planner.radix import Node, RadixTree

_RUNS = st.lists(
    st.one_of(
        st.text("ab", min_size=1, max_size=40),
        st.builds(Slot, st.sampled_from("xyz"), st.just(5), st.just(("row",))),
    ),
    min_size=1,
    max_size=6,
)


def _letters(text: str) -> tuple[str, ...]:
    return tuple(text)


def test_prompts_of_different_workers_share_nothing() -> None:
    tree = RadixTree(_letters)
    one, other = (tree.add(name, ("abc",), worker=name) for name in ("a", "b"))
    assert one.parent is other.parent is tree.root


def test_a_node_with_a_placeholder_that_varies_has_a_slot() -> None:
    tree = RadixTree(_letters)
    leaf = tree.add("a", ("abc", Slot("q", 5, ("question",)), "de"))
    tree.add("b", ("ab", Slot("c", 5)))
    assert leaf.has_slot
    assert leaf.parent is not None
    assert not leaf.parent.has_slot


def test_call_is_added_once() -> None:
    tree = RadixTree()
    tree.add("a", ("x",))
    with pytest.raises(ValueError, match="'a' is in the tree already"):
        tree.add("a", ("y",))


def _path(node: Node | None) -> list[Node]:
    return [] if node is None else [*_path(node.parent), node]


@given(st.lists(_RUNS, min_size=1, max_size=8))
def test_paths_spell_the_prompts_and_share_their_beginnings(
    prompts: list[list[str | Slot]],
) -> None:
    tree = RadixTree(_letters)
    flat = []
    for number, prompt in enumerate(prompts):
        tree.add(str(number), tuple(prompt))
        flat.append(
            [symbol for run in prompt for symbol in (run if isinstance(run, str) else [run])]
        )
    paths = [_path(tree.ends[str(number)]) for number in range(len(prompts))]
    for path, symbols in zip(paths, flat, strict=True):
        assert [symbol for node in path for symbol in node.symbols] == symbols
    for one, first in zip(paths, flat, strict=True):
        for other, second in zip(paths, flat, strict=True):
            same = next(
                (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
                min(len(first), len(second)),
            )
            common = [node for node in one if node in other]
            assert sum(len(node.symbols) for node in common) == same
