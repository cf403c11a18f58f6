"""The plan of `weft run`: groups of rows by the beginning of their prompts."""

from __future__ import annotations

import json
from collections import Counter, deque
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_run.language.graph import Workflow
from weft_run.language.spec import load
from weft_run.plan import groups
from weft_run.plan.commands import ANY, Read, Send, Turn
from weft_run.plan.dispatch import Dispatch
from weft_run.plan.groups import Grouped, leading_columns

WINDOWS = {"r0": 8, "r1": 8}
EXPERTS = {
    name: {"llm": {"system": f"You are {name}.", "user": "{{ context }}\n{{ question }}"}}
    for name in ("a", "b", "c")
}
JUDGE = {"judge": {"llm": {"user": "{{ question }} {{ a }} {{ b }} {{ c }}"}}}


def workflow(ops: dict[str, object], **inputs: str) -> Workflow:
    inputs = inputs or {"context": "str", "question": "str"}
    text = {"weft": 1, "model": "m", "inputs": inputs, "ops": ops}
    return load(json.dumps({**text, "outputs": {"out": list(ops)[-1]}}))


MAP_REDUCE = workflow(EXPERTS | JUDGE)


@pytest.mark.parametrize(
    ("ops", "path"),
    [
        (EXPERTS | JUDGE, ("context", "question")),
        ({"a": {"llm": {"user": "Answer: {{ question }} {{ context }}"}}}, ("question", "context")),
        ({"a": {"llm": {"user": "Say hello."}}}, ()),
        ({"a": {"format": "{{ context }}"}}, ()),
        ({"a": {"format": "{{ context }}"}, "b": {"llm": {"user": "{{ a }} {{ question }}"}}}, ()),
        (
            {"a": {"loop": {"max": 2, "until": "{{ b }}"},
                   "body": {"b": {"llm": {"user": "{{ context }} {{ previous }}"}}}}},
            ("context",),
        ),
    ],
)  # fmt: skip
def test_paths_are_the_columns_with_which_most_prompts_begin(ops, path) -> None:
    assert leading_columns(workflow(ops)) == path


def test_items_of_a_column_are_that_column() -> None:
    ops = {"a": {"for_each": "docs", "llm": {"user": "{{ item }} {{ q }}"}}}
    assert leading_columns(workflow(ops, docs="list", q="str")) == ("docs", "q")


def play(plan: Grouped, rows: list[tuple[str, str]]) -> list[tuple[str, Turn]]:
    for number, (context, question) in enumerate(rows):
        plan.begin(number, {"context": context, "question": question})
    return [(plan.replica("a", n), plan.turn("a", n)) for n in range(len(rows))]


def test_rows_of_a_group_share_replica_and_turn_in_any_order_of_the_input() -> None:
    rows = [(f"context {n}", f"question {q}") for n in range(8) for q in range(3)]
    Random(5).shuffle(rows)
    found = play(Grouped(MAP_REDUCE, WINDOWS), rows)
    of: dict[str, set[tuple[str, Turn]]] = {}
    for (context, _), where in zip(rows, found, strict=True):
        of.setdefault(context, set()).add(where)
    assert all(len(one) == 1 for one in of.values())
    turns = list(dict.fromkeys(turn for _, turn in found))
    assert turns == sorted(turns)
    assert len(turns) == 8
    counts = Counter(replica for replica, _ in found)
    assert abs(counts["r0"] - counts["r1"]) <= 3


def turns_of(plan: Grouped, operators: list[str], rows: int = 2) -> list[tuple[str, int]]:
    """Return the calls of some rows of one group, in the order in which they are sent."""
    for row in range(rows):
        plan.begin(row, {"context": "c", "question": f"q{row}"})
    plan.begin(rows, {"context": "d", "question": "q"})
    calls = [(one, row) for row in range(rows + 1) for one in operators]
    found = sorted(calls, key=lambda call: plan.turn(*call))
    # The next group follows.
    assert [row for _, row in found[-len(operators) :]] == [rows] * len(operators)
    return found[: -len(operators)]


def test_a_group_is_sent_prefix_by_prefix() -> None:
    found = turns_of(Grouped(MAP_REDUCE, WINDOWS), ["a", "b", "c", "judge"])
    experts = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    # The judge has no column of the group: a row ends when its experts have.
    assert found == [*experts, ("c", 0), ("judge", 0), ("c", 1), ("judge", 1)]


def test_a_large_group_is_sent_in_blocks_of_rows() -> None:
    found = turns_of(Grouped(MAP_REDUCE, WINDOWS), ["a", "b"], rows=20)
    blocks = [range(8), range(8, 16), range(16, 20)]
    assert found == [(one, row) for block in blocks for one in ("a", "b") for row in block]


def test_rows_of_a_group_end_one_after_another_while_others_wait() -> None:
    """Tools and other models have work before the whole group has been read."""
    machine = Dispatch(MAP_REDUCE, {"r0": 8, "r1": 8}, plan=Grouped(MAP_REDUCE, {"r0": 8, "r1": 8}))
    commands, sent, judged = deque(machine.start()), 0, 0
    while commands and not judged:
        one = commands.popleft()
        if isinstance(one, Read):
            rows = [(n, {"context": "c", "question": f"q{n}"}) for n in range(64)]
            commands += machine.rows(rows[: one.count], last=True)
        elif isinstance(one, Send):
            sent, judged = sent + 1, judged + (one.work.operator == "judge")
            commands += machine.succeeded(one.work.number, f"answer {one.work.number}")
    # Two replicas with a block of eight rows each, three experts, and a window of calls.
    assert judged
    assert sent <= 2 * 8 * 3 + 16


@pytest.mark.parametrize(
    "ops",
    [
        # One prefix, and a longer one of each row.
        {
            "a": {"llm": {"user": "{{ context }}\n{{ question }} short"}},
            "b": {"llm": {"user": "{{ context }}\n{{ question }} long"}},
        },
        # The second prompt continues the first one.
        {
            "a": {"llm": {"system": "s", "user": "{{ context }}\n{{ question }}"}},
            "b": {"llm": {"system": "s", "user": "{{ context }}\n{{ question }} {{ a }}"}},
        },
        # Both read the columns of the group alike, and differ behind them.
        {
            "a": {"llm": {"user": "{{ context }} A {{ question }}"}},
            "b": {"llm": {"user": "{{ context }} B {{ question }}"}},
        },
        # No prefix of the group.
        {
            "a": {"llm": {"system": "x", "user": "{{ context }}\n{{ question }}"}},
            "b": {"llm": {"system": "y", "user": "{{ a }}"}},
        },
    ],
)
def test_calls_without_a_prefix_in_the_group_stay_with_their_row(ops: dict[str, object]) -> None:
    found = turns_of(Grouped(workflow(ops), WINDOWS), ["a", "b"])
    assert found == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_prefixes_differ_by_text_between_columns_and_by_expressions() -> None:
    ops: dict[str, object] = {
        name: {"llm": {"user": f"{{{{ context }}}} {user} {{{{ question }}}} {{{{ last }}}}"}}
        for name, user in {"a": "A", "b": "B"}.items()
    } | {"c": {"llm": {"user": "{{ context | upper }} A {{ question }} {{ last }}"}}}
    plan = Grouped(workflow(ops, context="str", question="str", last="str"), WINDOWS)
    for row in range(2):
        plan.begin(row, {"context": "c", "question": "q", "last": row})
    calls = [(one, row) for row in range(2) for one in ops]
    found = sorted(calls, key=lambda call: plan.turn(*call))
    assert found == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0), ("c", 1)]


def test_prefixes_of_two_models_differ_and_those_in_loops_and_branches_count() -> None:
    asked = "{{ context }}\n{{ question }}"
    ops: dict[str, object] = {
        "a": {"llm": {"user": asked}},
        "b": {"llm": {"user": asked, "model": "n"}},
        "c": {
            "loop": {"max": 2, "until": "{{ d }}"},
            "body": {"d": {"llm": {"user": f"X {asked}"}}},
        },
    }
    found = turns_of(Grouped(workflow(ops), WINDOWS), ["a", "b", "c.d"])
    assert [name for name, _ in found] == ["a", "a", "b", "b", "c.d", "c.d"]


def test_a_beginning_that_all_rows_share_does_not_fill_one_replica() -> None:
    found = play(Grouped(MAP_REDUCE, WINDOWS), [("same", f"q{n}") for n in range(64)])
    counts = Counter(replica for replica, _ in found)
    assert abs(counts["r0"] - counts["r1"]) <= WINDOWS["r0"] + 1


def test_longer_common_beginnings_come_first() -> None:
    ops = {"a": {"llm": {"user": "{{ title }} {{ context }} {{ question }}"}}}
    plan = Grouped(workflow(ops, title="str", context="str", question="str"), {"r0": 2, "r1": 2})
    number = 0
    homes: dict[int, set[str]] = {}
    for _ in range(3):
        for context in range(12):
            columns = {"title": "all", "context": context, "question": number + context}
            plan.begin(number + context, columns)
        for context in range(12):
            homes.setdefault(context, set()).add(plan.replica("a", number + context))
        for context in range(12):
            plan.ended(number + context)
        number += 12
        # Nothing is open: the second and third round follow the first.
    assert all(len(one) == 1 for one in homes.values())


def test_larger_windows_and_faster_replicas_get_more_rows() -> None:
    plan = Grouped(MAP_REDUCE, {"r0": 30, "r1": 10})
    counts = Counter(replica for replica, _ in play(plan, [(f"c{n}", "q") for n in range(40)]))
    assert counts == {"r0": 30, "r1": 10}
    plan = Grouped(MAP_REDUCE, WINDOWS)
    homes: dict[str, list[int]] = {"r0": [], "r1": []}
    ends = Counter({"r0": 0, "r1": 0})
    for number in range(300):
        plan.begin(number, {"context": f"c{number}", "question": "q"})
        # A single row has no replica yet.
        for row in (0, 1) if number == 1 else (number,) if number else ():
            homes[plan.replica("a", row)].append(row)
        if number % 3 == 2 and number > 30:
            # r0 ends two rows for each one that r1 ends.
            for name in ("r0", "r0", "r1"):
                plan.ended(homes[name][ends[name]])
                ends[name] += 1
    assert len(homes["r0"]) > 1.7 * len(homes["r1"])


def test_rows_of_a_small_input_follow_the_speeds() -> None:
    rows = [(f"c{n}", "q") for n in range(45)]
    found = play(Grouped(MAP_REDUCE, WINDOWS, speeds={"r0": 0.5, "r1": 1.0}), rows)
    assert Counter(replica for replica, _ in found) == {"r0": 15, "r1": 30}
    # A single row runs on the fast replica.
    assert found[0][0] == "r1"


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=60),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
)
def test_equal_speeds_change_no_plan(
    rows: list[tuple[int, bool]], windows: tuple[int, int]
) -> None:
    counts = {"r0": windows[0], "r1": windows[1]}
    plans = [
        Grouped(MAP_REDUCE, counts),
        Grouped(MAP_REDUCE, counts, speeds=dict.fromkeys(counts, 1.0)),
    ]
    made = []
    for plan in plans:
        found = []
        for number, (context, ends) in enumerate(rows):
            plan.begin(number, {"context": context, "question": number})
            found.append((plan.replica("a", number), plan.turn("a", number)))
            if ends:
                plan.ended(number)
        made.append(found)
    assert made[0] == made[1]


def test_calls_go_to_replicas_that_serve_their_model() -> None:
    ops = {
        "a": {"llm": {"user": "{{ context }}", "model": "small"}},
        "b": {"llm": {"user": "{{ context }}", "model": "large"}},
        "c": {"llm": {"user": "{{ context }}", "model": "unknown"}},
    }
    serves = {"s0": frozenset({"small"}), "s1": frozenset({"small"}), "l0": frozenset({"large"})}
    plan = Grouped(workflow(ops), dict.fromkeys(serves, 4), serves)
    small = set()
    for number in range(6):
        plan.begin(number, {"context": f"c{number}", "question": "q"})
        small.add(plan.replica("a", number))
        assert plan.replica("b", number) == "l0"
        assert plan.replica("c", number) == ANY
    assert small == {"s0", "s1"}


def test_memory_does_not_grow_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_GROUPS", 10)
    plan = Grouped(MAP_REDUCE, WINDOWS)
    for number in range(100):
        plan.begin(number, {"context": f"c{number}", "question": "q"})
        plan.turn("a", number)
        plan.ended(number)
    assert len(plan._groups) <= 10
    assert not plan._rows
    assert set(plan._open.values()) == {0}


def test_calls_go_to_any_replica_while_one_has_no_row() -> None:
    plan = Grouped(MAP_REDUCE, WINDOWS)
    plan.begin(0, {"context": "c", "question": "q"})
    assert plan.replica("a", 0) == ANY
    plan.begin(1, {"context": "d", "question": "q"})
    assert {plan.replica("a", 0), plan.replica("a", 1)} == {"r0", "r1"}
    plan.ended(0)
    assert plan.replica("a", 1) == ANY


def test_calls_of_several_models_keep_to_the_replicas_of_theirs() -> None:
    ops = {"a": {"llm": {"user": "{{ context }}"}}, "b": {"llm": {"user": "{{ a }}", "model": "n"}}}
    serves = {"r0": frozenset({"m"}), "r1": frozenset({"n"})}
    plan = Grouped(workflow(ops), WINDOWS, serves)
    plan.begin(0, {"context": "c", "question": "q"})
    assert (plan.replica("a", 0), plan.replica("b", 0)) == ("r0", "r1")
