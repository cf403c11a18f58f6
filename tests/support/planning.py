"""Small batches of workflows, and a strategy that draws them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from weft_bench.planner.calls import PlannedCall, Slot
from weft_gateway.policies.costs import EngineCosts, StepCosts
from weft_run.plan.costs import Replica

# About an 8B model on an A100, with 32 slots.
STEPS = StepCosts(1e-3, 10e-3, 100e-6, 100e-6, 85e-9, together=32)


def replica(
    name: str, *, models: Sequence[str] = (), slow: float = 1.0, kv_tokens: int = 50_000
) -> Replica:
    """Return a replica. slow: factor on all its costs."""
    costs = StepCosts(
        STEPS.step_s * slow,
        STEPS.weights_s * slow,
        STEPS.prefill_token_s * slow,
        STEPS.decode_s * slow,
        STEPS.context_token_s * slow,
        together=STEPS.together,
    )
    return Replica(name, EngineCosts(costs, kv_tokens), frozenset(models))


def call(
    name: str,
    *runs: Slot,
    needs: Sequence[str] = (),
    answer: float = 50.0,
    model: str = "m",
    per_row: float = 1.0,
) -> PlannedCall:
    """Return a call whose answers appear in prompts as slots with its name."""
    return PlannedCall(name, model, runs, answer, 1.5 * answer, tuple(needs), per_row, name)


def static(name: str, tokens: int = 100) -> Slot:
    """Text that is the same in all rows."""
    return Slot(name, tokens)


def varies(name: str, tokens: int = 40) -> Slot:
    """Text that differs in each row."""
    return Slot(name, tokens, (name,))


def chain() -> tuple[PlannedCall, ...]:
    """Two experts with different roles, and a judge that reads both."""
    question = varies("question")
    return (
        call("first", static("role 1"), question),
        call("second", static("role 2"), question),
        call("judge", static("judge"), question, varies("first", 50), varies("second", 50),
             needs=("first", "second")),
    )  # fmt: skip


@st.composite
def workflows(draw: st.DrawFn, models: Sequence[str] = ("m",)) -> tuple[PlannedCall, ...]:
    """Draw up to eight calls that need earlier ones."""
    made: list[PlannedCall] = []
    for number in range(draw(st.integers(1, 8))):
        needs = (
            draw(st.lists(st.sampled_from(made), unique_by=lambda c: c.name, max_size=3))
            if made
            else []
        )
        runs = [
            static(f"system {draw(st.integers(0, 2))}", 64),
            static(f"role {draw(st.integers(0, 3))}", 32),
        ]
        if draw(st.booleans()):
            runs.append(varies("question", draw(st.integers(1, 60))))
        runs += [Slot(one.name, round(one.answer), ("row",)) for one in needs]
        made.append(
            call(
                f"call {number}",
                *runs,
                needs=[one.name for one in needs],
                answer=float(draw(st.integers(1, 80))),
                model=draw(st.sampled_from(models)),
                per_row=draw(st.sampled_from([1.0, 1.0, 3.0])),
            )
        )
    return tuple(made)
