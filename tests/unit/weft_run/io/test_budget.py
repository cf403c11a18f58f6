"""Budgets: tokens used and reserved, and failed rows."""

from __future__ import annotations

from weft_run.io.budget import OPEN_ANSWER_TOKENS, Budget, reserved
from weft_run.language.requests import LlmRequest
from weft_run.plan.commands import Work


def call(text: str = "", **parameters: int) -> LlmRequest:
    return LlmRequest((("user", text),), "m", parameters)


def work(number: int, **parameters: int) -> Work:
    request = call(**parameters)
    return Work(number, 0, "ask", f"key-{number}", True, 1, True, request, "")


def test_a_call_reserves_its_prompt_and_its_answer() -> None:
    assert reserved(call(max_tokens=100)) == 108
    assert reserved(call("x" * 40, max_completion_tokens=100)) == 128
    assert reserved(call()) == 8 + OPEN_ANSWER_TOKENS


def test_reservations_are_returned() -> None:
    budget = Budget(tokens=220)
    assert budget.admit(work(1, max_tokens=100))
    assert budget.admit(work(2, max_tokens=100))
    assert not budget.admit(work(3, max_tokens=100))
    budget.settle(1, 10)
    assert not budget.admit(work(3, max_tokens=100))
    budget.settle(2, 10)
    assert budget.admit(work(3, max_tokens=100))
    assert budget.used == 20


def test_calls_with_a_known_answer_need_no_budget() -> None:
    budget = Budget(tokens=50, is_free=lambda one: one.key == "key-2")
    assert not budget.admit(work(1, max_tokens=100))
    assert budget.admit(work(2, max_tokens=100))
    assert not budget.admit(work(3, max_tokens=48))
    assert budget.admit(work(3, max_tokens=40))


def test_failed_rows_are_counted() -> None:
    budget = Budget(errors=1)
    budget.row_failed()
    assert budget.spent == ""
    budget.row_failed()
    assert budget.spent == "errors"
    unlimited = Budget()
    unlimited.row_failed()
    assert unlimited.spent == ""
