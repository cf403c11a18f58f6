"""The calls of a workflow as the planner sees them."""

from __future__ import annotations

from weft_run.language.graph import (
    Format,
    InputType,
    Llm,
    Loop,
    Message,
    Operator,
    Workflow,
    in_order,
    operator,
)
from weft_run.language.templates import Template
from weft_run.plan.calls import Profile, planned_calls
from weft_run.plan.prompts import Slot


def _llm(*messages: tuple[str, str], **bindings: str) -> Llm:
    return Llm(
        tuple(Message(role, Template.parse(text, bindings)) for role, text in messages),  # type: ignore[arg-type]
        parameters={"temperature": 0, "max_tokens": 90},
    )


def _workflow(*operators: Operator) -> Workflow:
    inputs = {"question": InputType.STR, "docs": InputType.LIST}
    return Workflow("w", "m", inputs, in_order(operators), {})


_DRAFT = operator("draft", _llm(("system", "You answer."), ("user", "{{ question }}")))
_REPLY = operator(
    "reply",
    _llm(
        ("system", "You answer."),
        ("user", "{{ question }}"),
        ("assistant", "{{ draft }}"),
        ("user", "Revise."),
    ),
)


def test_reply_shares_the_prompt_and_the_answer_of_the_draft() -> None:
    calls = planned_calls(_workflow(_DRAFT, _REPLY), Profile({"question": 200}, {"draft": 64}))
    draft, reply = calls
    assert (draft.needs, reply.needs) == ((), ("draft",))
    assert reply.prompt[:4] == (*draft.prompt, Slot("draft", 64, ("question",)))


def test_lengths_come_from_the_profile_and_the_limit_of_the_request() -> None:
    draft, _ = planned_calls(_workflow(_DRAFT, _REPLY), Profile({"question": 200}, {"draft": 500}))
    assert [run for run in draft.prompt if isinstance(run, Slot)] == [
        Slot("question", 200, ("question",))
    ]
    assert draft.answer == 90
    assert draft.model == "m"


def test_calls_need_the_calls_behind_tools() -> None:
    tool = operator("tool", Format(Template.parse("{{ draft }}!")))
    last = operator("last", _llm(("user", "{{ tool }}")))
    assert planned_calls(_workflow(_DRAFT, tool, last))[-1].needs == ("draft",)


def test_operator_over_a_list_has_a_call_for_each_item() -> None:
    facts = operator("facts", _llm(("user", "{{ question }} {{ item }}")), for_each="docs")
    (call,) = planned_calls(_workflow(facts), Profile({"docs": 400}, items={"facts": 8}))
    assert call.per_row == 8
    item = [run for run in call.prompt if isinstance(run, Slot)][-1]
    assert item.tokens == 50
    assert item.axes == ("docs", "item of docs")


def test_calls_of_a_loop_run_once_per_round() -> None:
    body = (operator("try", _llm(("user", "{{ question }} {{ previous }}"))),)
    loop = operator("fix", Loop(body, Template.parse("{{ round > 2 }}"), 5))
    (call,) = planned_calls(_workflow(loop), Profile(rounds={"fix": 2}))
    assert call.name == "fix.try"
    assert call.per_row == 2
    assert any("round of fix" in run.axes for run in call.prompt if isinstance(run, Slot))


def test_same_expression_is_the_same_placeholder() -> None:
    one = operator("one", _llm(("user", "{{ q | upper }} a"), q="question"))
    two = operator("two", _llm(("user", "{{ q | upper }} b"), q="question"))
    first, second = planned_calls(_workflow(one, two))
    assert first.prompt[:2] == second.prompt[:2]
    assert first.prompt[2] != second.prompt[2]
