"""The goal of a call: classes of keys, clients' wishes, and their fates."""

from __future__ import annotations

import pytest
from weft_gateway.model.hint import Hints
from weft_gateway.model.slo import NO_GOAL, Ask, Goal, Granted, Scope, SloClass, Slos
from weft_gateway.policies.goals import (
    asked_goal,
    begins_turn,
    calls_tools,
    refers_to_program,
    session_goal,
)
from weft_gateway.policies.hints import read_hints

CLASSES = {
    "chat": SloClass("chat", Scope.TURN, 8.0),
    "report": SloClass("report", Scope.PROGRAM, 90.0),
    "step": SloClass("step", Scope.CALL, 2.0),
    "batch": SloClass("batch"),
}
BATCH = Granted("batch", frozenset({"batch"}))
SLOS = Slos(
    CLASSES,
    {
        "t": Granted("report", frozenset({"report", "chat"})),
        "s": Granted("step", frozenset({"step"})),
    },
    BATCH,
)
REPORT = Goal("report", Scope.PROGRAM, 90.0)


def asked(tenant: str, headers: dict[bytes, bytes], *, slos: Slos = SLOS, turn: bool = False):
    ask, hints = asked_goal(slos, tenant, read_hints({}, headers), turn)
    return ask, hints.fates


def test_class_of_the_key_is_the_default() -> None:
    assert asked("t", {}) == (Ask(REPORT), ())
    assert asked("other", {}) == (None, ())
    assert asked("other", {}, turn=True) == (Ask(NO_GOAL, turn=True), ())


@pytest.mark.parametrize(
    "name", [b"x-weft-slo", b"x-llm-d-inference-objective", b"x-gateway-inference-objective"]
)
def test_client_selects_a_class_of_its_key(name: bytes) -> None:
    ask, fates = asked("t", {name: b"chat"}, turn=True)
    assert ask == Ask(Goal("chat", Scope.TURN, 8.0), explicit=True, turn=True)
    assert fates == (f"{name.decode()}=applied as the class of the program",)


@pytest.mark.parametrize(
    ("tenant", "name", "fate"),
    [
        ("t", b"batch", "applied, clamped to report: the key may use chat, report"),
        ("t", b"chatt", "ignored: unknown class; known: chat, report, step, batch"),
        ("t", b"no class", "ignored: must be the name of a class"),
    ],
)
def test_other_classes_have_a_fate_and_the_default_holds(
    tenant: str, name: bytes, fate: str
) -> None:
    assert asked(tenant, {b"x-weft-slo": name}) == (Ask(REPORT), (f"x-weft-slo={fate}",))


@pytest.mark.parametrize(
    ("tenant", "seconds", "deadline_s", "fate"),
    [
        ("t", b"120", 120.0, "applied as the target of the program"),
        ("t", b"5", 90.0, "applied as the target of the program, clamped to 90"),
        ("t", b"-5", None, "ignored: must be more than 0"),
        ("t", b"nan", None, "ignored: must be a number"),
        ("other", b"5", None, "ignored: the class has no deadline per program"),
    ],
)
def test_own_deadline_is_not_earlier_than_that_of_the_class(
    tenant: str, seconds: bytes, deadline_s: float | None, fate: str
) -> None:
    ask, fates = asked(tenant, {b"x-weft-program-deadline-s": seconds})
    assert fates == (f"x-weft-program-deadline-s={fate}",)
    if deadline_s is not None:
        assert ask == Ask(Goal("report", Scope.PROGRAM, deadline_s), explicit=True)
    else:
        assert ask == (Ask(REPORT) if tenant == "t" else None)


CHAT = Goal("chat", Scope.TURN, 8.0, 5.0, 1)


@pytest.mark.parametrize(
    ("present", "seconds", "ask", "fate"),
    [
        (CHAT, b"100", Ask(Goal("chat", Scope.TURN, 8.0)),
         "ignored: the class has no deadline per program"),
        (REPORT, b"300", Ask(Goal("report", Scope.PROGRAM, 300.0), explicit=True),
         "applied as the target of the program"),
        # A class of an earlier SLO file, or of none.
        (Goal("old", Scope.TURN, 8.0), b"100", Ask(Goal("report", Scope.PROGRAM, 100.0), True),
         "applied as the target of the program"),
    ],
)  # fmt: skip
def test_deadline_without_a_class_refers_to_that_of_the_program(
    present: Goal, seconds: bytes, ask: Ask, fate: str
) -> None:
    hints = read_hints({}, {b"x-weft-program-deadline-s": seconds})
    assert refers_to_program(SLOS, "t", hints)
    found, hints = asked_goal(SLOS, "t", hints, False, present)
    assert found == ask
    assert hints.fates == (f"x-weft-program-deadline-s={fate}",)


def test_class_that_the_key_may_not_use_is_that_of_the_program() -> None:
    hints = read_hints({}, {b"x-weft-slo": b"batch"})
    ask, hints = asked_goal(SLOS, "t", hints, False, CHAT)
    assert ask == Ask(Goal("chat", Scope.TURN, 8.0))
    assert hints.fates == ("x-weft-slo=applied, clamped to chat: the key may use chat, report",)


def test_calls_with_a_class_or_without_hints_do_not_refer_to_the_program() -> None:
    deadline = {b"x-weft-program-deadline-s": b"100"}
    assert not refers_to_program(SLOS, "t", read_hints({}, {**deadline, b"x-weft-slo": b"chat"}))
    assert not refers_to_program(SLOS, "t", read_hints({}, {}))
    assert not refers_to_program(Slos(), "t", read_hints({}, deadline))


def test_deadline_of_a_call_needs_a_class_per_call() -> None:
    for tenant, deadline_s in (("t", None), ("other", None), ("s", 2.0)):
        _, hints = asked_goal(SLOS, tenant, read_hints({"weft": {"deadline_s": 1}}, {}), False)
        assert hints.deadline_s == deadline_s


def test_without_a_file_deadlines_are_the_clients() -> None:
    headers = {b"x-weft-program-deadline-s": b"5", b"x-weft-slo": b"chat"}
    ask, fates = asked("t", headers, slos=Slos())
    assert ask == Ask(Goal("", Scope.PROGRAM, 5.0), explicit=True)
    assert "x-weft-slo=ignored: the gateway has no SLO file" in fates
    assert asked_goal(Slos(), "t", Hints(deadline_s=3.0), False) == (None, Hints(deadline_s=3.0))


def test_session_has_a_goal_or_an_error() -> None:
    assert session_goal(SLOS, "t", None, None) is None
    assert session_goal(SLOS, "t", "chat", 9.0) == Ask(Goal("chat", Scope.TURN, 9.0), explicit=True)
    assert session_goal(SLOS, "t", None, 90.0) == Ask(REPORT, explicit=True)
    assert session_goal(Slos(), "t", None, 9.0) == Ask(Goal("", Scope.PROGRAM, 9.0), explicit=True)
    assert session_goal(SLOS, "t", None, 9.0, CHAT) == session_goal(SLOS, "t", "chat", 9.0)
    for slos, tenant, slo, deadline_s, said in (
        (SLOS, "t", "batch", None, "the classes of this key are: chat, report$"),
        (SLOS, "t", "reprot", None, "the classes of this key are: .*; did you mean report"),
        (Slos(), "t", "chat", None, "the classes of this key are: none"),
        (SLOS, "t", "report", 5.0, "at least 90"),
        (SLOS, "other", None, 5.0, "must be not set"),
    ):
        with pytest.raises(ValueError, match=said):
            session_goal(slos, tenant, slo, deadline_s)


@pytest.mark.parametrize(
    ("body", "turn"),
    [
        ({"messages": [{"role": "system"}, {"role": "user", "content": "hi"}]}, True),
        ({"messages": [{"role": "user", "content": "hi"}, {"role": "tool"}]}, False),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, False),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, True),
        ({"input": "hi"}, True),
        ({"input": [{"type": "function_call_output"}]}, False),
        ({"prompt": "hi"}, True),
        ({"messages": []}, False),
        ({"messages": ["x"]}, False),
    ],
)
def test_users_message_begins_a_turn(body: dict[str, object], turn: bool) -> None:
    assert begins_turn(body) is turn


@pytest.mark.parametrize(
    ("answer", "tools"),
    [
        ({"choices": [{"message": {"content": "done"}}]}, False),
        ({"choices": [{"message": {"tool_calls": [{"id": "1"}]}}]}, True),
        ({"content": [{"type": "text"}, {"type": "tool_use"}]}, True),
        ({"content": [{"type": "text"}]}, False),
        ({"output": [{"type": "function_call"}]}, True),
        ({"output": None}, False),
    ],
)
def test_answer_without_tool_calls_ends_a_turn(answer: dict[str, object], tools: bool) -> None:
    assert calls_tools(answer) is tools
