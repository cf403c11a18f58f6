"""The templated radix tree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_bench.planner.radix import RadixTree, indirect
from weft_run.plan.prompts import Slot

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


def test_common_prefix_is_split_off_and_cut_at_blocks() -> None:
    tree = RadixTree(_letters, block=4)
    first = tree.add("first", ("abcdefgh",))
    second = tree.add("second", ("abcdefzz",))
    assert first.parent is second.parent
    assert first.end == 8
    assert tree.common(first, second).end == 6
    assert tree.shared(first, second) == 4


def test_prompts_of_different_workers_share_nothing() -> None:
    tree = RadixTree(_letters)
    one, other = (tree.add(name, ("abc",), worker=name) for name in ("a", "b"))
    assert tree.shared(one, other) == 0


def test_node_varies_over_the_axes_of_all_placeholders_before_its_end() -> None:
    tree = RadixTree(_letters)
    leaf = tree.add("a", ("abc", Slot("q", 5, ("question",)), "de"))
    tree.add("b", ("ab", Slot("c", 5, ("context",))))
    assert leaf.axes == {"question"}
    assert not leaf.static
    assert leaf.path()[0].static
    assert leaf.end == 10


def test_answer_extends_the_prompt_of_the_call_that_reads_it() -> None:
    tree, answer = RadixTree(_letters, block=1), Slot("a", 7, ("row",))
    tree.add("a", ("xy",), answer=answer)
    reply = tree.add("b", ("xy", answer, "z"))
    assert tree.shared(tree.leaf("a"), reply) == 2
    assert tree.shared(tree.trails["a"], reply) == 9


def test_call_is_added_once() -> None:
    tree = RadixTree()
    tree.add("a", ("x",))
    with pytest.raises(ValueError, match="'a' is in the tree already"):
        tree.add("a", ("y",))


@given(st.lists(_RUNS, min_size=1, max_size=8))
def test_paths_spell_the_prompts(prompts: list[list[str | Slot]]) -> None:
    tree = RadixTree(_letters, block=1)
    flat = []
    for number, prompt in enumerate(prompts):
        tree.add(str(number), tuple(prompt))
        flat.append(
            [symbol for run in prompt for symbol in (run if isinstance(run, str) else [run])]
        )
    for number, symbols in enumerate(flat):
        path = tree.leaf(str(number)).path()
        assert [symbol for node in path for symbol in node.symbols] == symbols
        assert sum(node.tokens for node in path) == tree.leaf(str(number)).end
    for one, first in enumerate(flat):
        for other, second in enumerate(flat):
            same = next(
                (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
                min(len(first), len(second)),
            )
            tokens = sum(5 if isinstance(symbol, Slot) else 1 for symbol in first[:same])
            assert tree.shared(tree.leaf(str(one)), tree.leaf(str(other))) == tokens


def test_dependencies_are_direct_and_indirect() -> None:
    assert indirect({"a": (), "b": ("a",), "c": ("b",)})["c"] == {"a", "b"}
    with pytest.raises(ValueError, match="'a' needs 'b'"):
        indirect({"a": ("b",), "b": ()})
