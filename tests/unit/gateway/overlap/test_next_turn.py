"""Automatic prefills, which start only after past turns have shown a gain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.model import ProgramKey
from weft_gateway.overlap.next_turn import NextTurnPredictor, head_of

TOOLS = [{"type": "function", "function": {"name": "find"}}]


def key(number: int) -> ProgramKey:
    return ProgramKey("t", f"p{number}")


def body(system: str, *more) -> dict:
    return {"messages": [{"role": "system", "content": system}, *more], "tools": TOOLS}


USER = {"role": "user", "content": "Where?"}
ANSWER = {
    "role": "assistant",
    "content": None,
    "reasoning_content": "hm",
    "tool_calls": [{"id": "c", "function": {"name": "find", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "there"}


def played(
    ahead: NextTurnPredictor, number: int, cached: int | None, following: str = "base"
) -> dict | None:
    """Play a turn of 1,000 tokens that calls a tool, and the next turn; return the prefill."""
    found = ahead.called(key(number), "main", body("base", USER), ANSWER, 1000)
    ahead.came(key(number), "main", body(following, USER, ANSWER, RESULT), cached)
    return found


def test_cached_prompts_are_not_prefilled():
    ahead = NextTurnPredictor()
    assert [played(ahead, n, 990) for n in range(6)] == [None] * 6


def test_answers_that_clients_rewrite_are_prefilled():
    ahead = NextTurnPredictor()
    found = [played(ahead, n, 500) for n in range(4)]
    assert found[:2] == [None, None]
    assert found[2] is not None
    assert found[2]["messages"][:2] == body("base", USER)["messages"]
    assert found[2]["messages"][2] == {"role": "assistant", "tool_calls": ANSWER["tool_calls"]}
    assert found[2]["tools"] == TOOLS


def test_system_prompt_that_depends_on_the_tool_is_predicted():
    ahead = NextTurnPredictor()
    found = [played(ahead, n, 0, following="read what was found") for n in range(4)]
    assert found[:2] == [None, None]
    assert found[3]["messages"][0]["content"] == "read what was found"
    assert found[3]["messages"][1:] == [
        USER,
        {"role": "assistant", "tool_calls": ANSWER["tool_calls"]},
    ]
    # Another tool has a separate prediction.
    other = {**ANSWER, "tool_calls": [{"id": "c", "function": {"name": "book"}}]}
    assert ahead.called(key(9), "main", body("base", USER), other, 1000) is None


def test_prompt_that_changes_each_time_is_not_predicted():
    ahead = NextTurnPredictor()
    found = [played(ahead, n, 0, following=f"it is {n} o'clock") for n in range(6)]
    assert found == [None] * 6


def test_prefilled_turns_do_not_count_as_cached():
    ahead = NextTurnPredictor()
    for n in range(4):
        played(ahead, n, 500)
    for n in range(4, 30):
        # The tokens are cached only because of the prefill, so prefills continue.
        assert played(ahead, n, None) is not None


def test_requested_prefill_needs_only_a_minimum_length():
    ahead = NextTurnPredictor()
    turn = (key(1), "main", body("base", USER), ANSWER)
    assert ahead.called(*turn, 1000, wanted=True) is not None
    assert ahead.called(*turn, 20, wanted=True) is None


def test_restarted_thread_changes_nothing():
    ahead = NextTurnPredictor()
    for n in range(4):
        ahead.called(key(n), "main", body("base", USER), ANSWER, 1000)
        ahead.came(key(n), "main", body("base", USER), 0)
    assert ahead.called(key(9), "main", body("base", USER), ANSWER, 1000) is None


def test_predictions_are_separate_by_tenant():
    ahead = NextTurnPredictor()
    for n in range(4):
        played(ahead, n, 0)
    other = ProgramKey("u", "p")
    assert ahead.called(other, "main", body("base", USER), ANSWER, 1000) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["messages", "role", "tools", "tool_calls", "function", "name", "x"]),
            inner | st.just("system"),
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(
    st.dictionaries(st.sampled_from(["messages", "tools"]), JSON),
    st.dictionaries(st.sampled_from(["tool_calls", "content", "role"]), JSON),
)
def test_no_input_raises(request, answer):
    ahead = NextTurnPredictor()
    ahead.called(key(1), "main", request, answer, 1000, wanted=True)
    ahead.came(key(1), "main", request, 3)
    head_of(request)
