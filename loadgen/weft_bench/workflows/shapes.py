"""The workflows of Helium's evaluation (section 7.1, Table 1; section 7.2, Figure 6).

Agents, rounds and chunks are the paper's. It publishes no lengths; those below are typical of its
data sets: a question of MMLU has about 120 tokens, a context of TAT-QA 700, ten Amazon reviews
1,000, a financial document 1,500. Answers have the lengths of the example in its Figure 3 or less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weft_gateway.workflows.calls import PlannedCall
from weft_gateway.workflows.prompts import Slot

from weft_bench.workflows.tasks import Batch

MODEL: Final = "m"
_ROLE: Final = 150
_SHORT: Final = 30


class Builder:
    """Collects the calls of a workflow."""

    def __init__(self) -> None:
        self.calls: list[PlannedCall] = []
        self._needs: dict[str, set[str]] = {}
        self._answers: dict[str, float] = {}

    def static(self, name: str, tokens: int = _ROLE) -> Slot:
        """Text that is the same in all rows."""
        return Slot(f"text of {name}", tokens)

    def column(self, name: str, tokens: int) -> Slot:
        """A value of the row."""
        return Slot(f"column {name}", tokens, (name,))

    def answer(self, call: str) -> Slot:
        """The answer of an earlier call."""
        return Slot(call, round(self._answers[call]), ("row",))

    def call(self, name: str, prompt: Sequence[Slot], answer: float, model: str = MODEL) -> str:
        """Add a call that needs the answers in its prompt. Returns its name."""
        needs = tuple(run.key for run in prompt if run.key in self._answers)
        runs = (*prompt, Slot(f"ask {name.split('.')[0]}", 4))
        found = PlannedCall(name, model, runs, answer, 1.5 * answer, needs, 1.0, name)
        self.calls.append(found)
        self._answers[name] = answer
        return name


def map_reduce(rows: int, experts: int = 14, context: int = 0) -> Batch:
    """Experts answer a question, a summarizer aggregates. context: tokens of a text that six
    questions share, which comes first in all prompts; 0 for questions without one.
    """
    build = Builder()
    head = [build.static("system", _ROLE), build.column("context", context)] if context else []
    question = build.column("question", 30 if context else 120)
    said = [
        build.call(f"expert{n}", [*head, build.static(f"role{n}"), question], 180)
        for n in range(experts)
    ]
    answers = [build.answer(one) for one in said]
    build.call("summary", [*head, build.static("summarize"), question, *answers], 120)
    distinct = {"context": max(1, rows // 6)} if context else {}
    return Batch("map-reduce", tuple(build.calls), rows, distinct)


def debate(rows: int, agents: int = 3, rounds: int = 2, context: int = 0) -> Batch:
    """Agents answer, then read each other's answers and revise."""
    build = Builder()
    head = [build.static("system", _ROLE), build.column("context", context)] if context else []
    question = build.column("question", 30 if context else 120)
    prompts = [[*head, build.static(f"role{n}"), question] for n in range(agents)]
    said: list[str] = []
    for turn in range(rounds):
        now = [build.call(f"agent{n}.{turn}", prompts[n], 180) for n in range(agents)]
        for n in range(agents):
            others = [build.answer(one) for one in now if one != now[n]]
            prompts[n] += [build.answer(now[n]), build.static("revise", _SHORT), *others]
        said = now
    answers = [build.answer(one) for one in said]
    build.call("judge", [*head, build.static("judge"), question, *answers], 100)
    distinct = {"context": max(1, rows // 6)} if context else {}
    return Batch("debate", tuple(build.calls), rows, distinct)


def reflect(rows: int, critics: int = 2, context: int = 700) -> Batch:
    """An expert drafts, critics comment, the expert revises."""
    build = Builder()
    head = [build.column("context", context), build.column("question", 30)]
    first = [build.static("expert"), *head]
    draft = build.call("draft", first, 220)
    said = [
        build.call(f"critic{n}", [build.static(f"critic{n}"), *head, build.answer(draft)], 150)
        for n in range(critics)
    ]
    comments = [build.answer(one) for one in said]
    build.call(
        "final", [*first, build.answer(draft), build.static("revise", _SHORT), *comments], 220
    )
    return Batch("reflect", tuple(build.calls), rows, {"context": max(1, rows // 6)})


def iterative(rows: int, chunks: int = 6) -> Batch:
    """A summarizer reads chunk after chunk and refines its summary."""
    build = Builder()
    last = ""
    for n in range(chunks):
        before = [build.answer(last)] if last else []
        text = build.column(f"chunk{n}", 1000)
        last = build.call(f"step{n}", [build.static("summarizer"), *before, text], 250)
    return Batch("iterative", tuple(build.calls), rows)


def parallel(rows: int, experts: int = 7, chunks: int = 6) -> Batch:
    """Experts each read all chunks, a writer combines the insights."""
    build = Builder()
    said = [
        build.call(
            f"expert{n}.{c}", [build.static(f"role{n}"), build.column(f"chunk{c}", 1000)], 100
        )
        for n in range(experts)
        for c in range(chunks)
    ]
    answers = [build.answer(one) for one in said]
    build.call("report", [build.static("writer"), *answers], 400)
    return Batch("parallel", tuple(build.calls), rows)


def trading(rows: int, branches: int = 8, rounds: int = 2) -> Batch:
    """Analysts, a debate, eight traders with debates about risks, a fund manager: 88 calls."""
    build = Builder()
    stock = build.column("stock", 10)
    reports = [
        _analyst(build, name, documents, tokens)
        for name, documents, tokens in (
            ("fundamentals", 5, 1500), ("market", 2, 1200), ("news", 4, 1500), ("social", 3, 1500),
        )
    ]  # fmt: skip
    read = [build.answer(one) for one in reports]
    sides: dict[str, list[Slot]] = {
        one: [build.static(one, 200), build.static("research", _SHORT), stock, *read]
        for one in ("bull", "bear")
    }
    argued: list[Slot] = []
    for turn in range(rounds):
        for one, other in (("bull", "bear"), ("bear", "bull")):
            if turn:
                last = f"{other}.{turn - 1}" if one == "bull" else f"{other}.{turn}"
                sides[one] += [build.static("reply", _SHORT), build.answer(last)]
            said = build.call(f"{one}.{turn}", sides[one], 250)
            sides[one] += [build.answer(said)]
            argued.append(build.answer(said))
    manager = build.call("manager", [build.static("manager", 200), stock, *argued], 250)
    final = [
        build.answer(_trader(build, number, rounds, stock, read, build.answer(manager)))
        for number in range(branches)
    ]
    build.call("fund", [build.static("fund", 200), stock, *final], 200)
    return Batch("trading", tuple(build.calls), rows)


def _analyst(build: Builder, name: str, documents: int, tokens: int) -> str:
    head = build.static(name, 250)
    stock = build.column("stock", 10)
    said = [
        build.call(f"{name}.{n}", [head, stock, build.column(f"{name}{n}", tokens)], 200)
        for n in range(documents)
    ]
    answers = [build.answer(one) for one in said]
    tail = [build.static("combine", _SHORT), stock, *answers]
    return build.call(f"{name}.report", [head, *tail], 250)


def _trader(
    build: Builder, number: int, rounds: int, stock: Slot, read: Sequence[Slot], plan: Slot
) -> str:
    decision = build.call(
        f"trader{number}", [build.static(f"trader{number}", 200), stock, plan], 150
    )
    kinds = ("risky", "safe", "neutral")
    prompts = {one: [build.static(one, 200), stock, *read, build.answer(decision)] for one in kinds}
    argued: list[Slot] = []
    for turn in range(rounds):
        now = {one: build.call(f"{one}{number}.{turn}", prompts[one], 150) for one in kinds}
        for one in kinds:
            others = [build.answer(now[other]) for other in kinds if other != one]
            prompts[one] += [build.answer(now[one]), build.static("reply", _SHORT), *others]
        argued += [build.answer(one) for one in now.values()]
    return build.call(f"judge{number}", [build.static("risk judge", 200), stock, *argued], 120)


# By name: the workflow for a number of rows. Rows of the paper: 200, 600, 200, 600, 1200, 200, 100.
SHAPES: Final[dict[str, Callable[[int], Batch]]] = {
    "map-reduce": map_reduce,
    "map-reduce-context": lambda rows: map_reduce(rows, 7, 700),
    "debate": debate,
    "debate-context": lambda rows: debate(rows, context=700),
    "reflect": reflect,
    "iterative": iterative,
    "parallel": parallel,
    "trading": trading,
}
