"""The goal of a call's program: by the class of its key, or as its client asks for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from weft_gateway.model.hint import Hints
from weft_gateway.model.slo import NO_GOAL, Ask, Goal, Granted, Scope, Slos
from weft_gateway.policies.hints import AS_CLASS, AS_TARGET, BY_DEADLINE

_TURN = Ask(NO_GOAL, turn=True)


def refers_to_program(slos: Slos, tenant: str, hints: Hints) -> bool:
    """Whether hints ask for a deadline or a class, and the class of the program decides."""
    if not slos.classes or hints.slo in slos.of(tenant).may:
        return False
    asked = (hints.slo, hints.deadline_s, hints.program_deadline_s)
    return any(value is not None for value in asked)


def asked_goal(
    slos: Slos, tenant: str, hints: Hints, turn: bool, present: Goal = NO_GOAL
) -> tuple[Ask | None, Hints]:
    """Return the goal that a call asks for, None for none, and its hints with their fates.

    turn: the call begins a turn. present: the goal of the program, whose class holds if the call
    selects none; needed if `refers_to_program`. With classes, a client cannot get an earlier
    deadline than that of a class which its key may use.
    """
    if not slos.classes:
        if hints.slo is not None:
            hints = _fate(hints, AS_CLASS, "ignored: the gateway has no SLO file")
        if hints.program_deadline_s is None:
            return None, hints
        return Ask(Goal("", Scope.PROGRAM, hints.program_deadline_s), explicit=True), hints
    granted = slos.of(tenant)
    own, explicit = slos.classes[_class(granted, present)], False
    if hints.slo in granted.may:
        own, explicit = slos.classes[hints.slo], True
    elif hints.slo in slos.classes:
        may = ", ".join(sorted(granted.may))
        hints = _fate(hints, AS_CLASS, f"applied, clamped to {own.name}: the key may use {may}")
    elif hints.slo is not None:
        hints = _fate(hints, AS_CLASS, f"ignored: unknown class; known: {', '.join(slos.classes)}")
    deadline_s = own.deadline_s
    if hints.program_deadline_s is not None:
        hints, asked_s = _granted(hints, "program_deadline_s", AS_TARGET, own.scope, deadline_s)
        if asked_s is not None:
            deadline_s, explicit = asked_s, True
    if hints.deadline_s is not None:
        hints, asked_s = _granted(hints, "deadline_s", BY_DEADLINE, own.scope, deadline_s)
        hints = replace(hints, deadline_s=asked_s)
    if not deadline_s and not explicit:
        return _TURN if turn else None, hints
    return Ask(Goal(own.name, own.scope, deadline_s), explicit, turn), hints


def session_goal(
    slos: Slos, tenant: str, slo: str | None, deadline_s: float | None, present: Goal = NO_GOAL
) -> Ask | None:
    """Return the goal that a client sets for a session, None for none. present: as in `asked_goal`.
    Raises ValueError for a class or a deadline that the key may not use.
    """
    if slo is None and deadline_s is None:
        return None
    granted = slos.of(tenant)
    if slo is not None and slo not in granted.may:
        close = get_close_matches(slo, granted.may, 1)
        also = f"; did you mean {close[0]}?" if close else ""
        may = ", ".join(sorted(granted.may)) or "none"
        raise ValueError(f"the classes of this key are: {may}{also}")
    name = slo or _class(granted, present)
    if not slos.classes:
        return Ask(Goal("", Scope.PROGRAM, deadline_s or 0.0), explicit=True)
    own = slos.classes[name]
    if deadline_s is not None and deadline_s < (own.deadline_s or deadline_s + 1):
        least = f"at least {own.deadline_s:g}" if own.deadline_s else "not set"
        raise ValueError(f"deadline_s must be {least} in the class {name}")
    return Ask(Goal(name, own.scope, deadline_s or own.deadline_s), explicit=True)


def begins_turn(body: Mapping[str, Any]) -> bool:
    """Whether the last message of a call is a user's, and no tool result."""
    messages = body.get("messages", body.get("input"))
    if not isinstance(messages, list):
        return True
    last = messages[-1] if messages else None
    if not isinstance(last, Mapping) or last.get("role") != "user":
        return False
    parts = last.get("content")
    return not isinstance(parts, list) or not any(
        isinstance(part, Mapping) and part.get("type") == "tool_result" for part in parts
    )


def calls_tools(answer: Mapping[str, Any]) -> bool:
    """Whether a parsed answer of any API contains calls of tools."""
    choices = [choice for choice in _list(answer, "choices") if isinstance(choice, Mapping)]
    if any(_list(choice.get("message"), "tool_calls") for choice in choices):
        return True
    items = [*_list(answer, "content"), *_list(answer, "output")]
    kinds = {item.get("type") for item in items if isinstance(item, Mapping)}
    return not kinds.isdisjoint({"tool_use", "function_call", "custom_tool_call"})


def _list(value: Any, name: str) -> list[Any]:
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, list) else []


def _class(granted: Granted, present: Goal) -> str:
    """Return the class of a program. A client may have chosen one that the key may use no more."""
    return present.slo if present.slo in granted.may else granted.default


def _granted(
    hints: Hints, name: str, applied: str, scope: Scope, least_s: float
) -> tuple[Hints, float | None]:
    """Return a deadline that a hint asks for, at least `least_s`; None if the class has none of
    this scope.
    """
    asked_s: float = getattr(hints, name)
    wanted = Scope.CALL if name == "deadline_s" else Scope.PROGRAM
    if scope is not wanted or not least_s:
        return _fate(hints, applied, f"ignored: the class has no deadline per {wanted}"), None
    if asked_s < least_s:
        return _fate(hints, applied, f"{applied}, clamped to {least_s:g}"), least_s
    return hints, asked_s


def _fate(hints: Hints, applied: str, fate: str) -> Hints:
    """Replace the fate of the hints that were applied."""
    return replace(
        hints,
        fates=tuple(
            [
                f"{text.partition('=')[0]}={fate}" if text.partition("=")[2].startswith(applied)
                else text
                for text in hints.fates
            ]
        ),
    )  # fmt: skip
