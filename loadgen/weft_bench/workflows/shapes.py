"""The workflows of Helium's evaluation (section 7.1, Table 1; section 7.2, Figure 6).

The order of each prompt's parts, agents, rounds, roles and lengths of fixed text are those of the
authors' code (mlsys-io/helium_demo, `benchmark`), which the paper does not print. In it, the 14
experts on MMLU have seven roles, and the eight traders have four prompts, so that calls repeat in
each row. It decodes greedily and ends answers at 512 tokens.

Lengths of data and answers are not published. Those below are typical of the data sets: a question
of MMLU has 120 tokens, a context of TAT-QA 700, ten Amazon reviews 1,000, a financial document
1,500.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weft_run.plan.calls import PlannedCall
from weft_run.plan.prompts import Slot

from weft_bench.workflows.tasks import Batch

MODEL: Final = "m"
_ROLES: Final = 7
_SYSTEM: Final = 20
_ROLE: Final = 150


class Builder:
    """Collects the calls of a workflow."""

    def __init__(self) -> None:
        self.calls: list[PlannedCall] = []
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
        needs = tuple(dict.fromkeys(run.key for run in prompt if run.key in self._answers))
        runs = (*prompt, self.static("begin of the answer", 4))
        found = PlannedCall(name, model, runs, answer, 1.5 * answer, needs, 1.0, name)
        self.calls.append(found)
        self._answers[name] = answer
        return name


def map_reduce(rows: int, experts: int = 14, context: int = 0) -> Batch:
    """Experts with seven roles answer a question, a summarizer aggregates. The role comes last.
    context: tokens of a text that six questions share; 0 for questions without one.
    """
    build = Builder()
    ask = _question(build, context)
    said = [
        build.call(
            f"expert{n}",
            [build.static("expert", _SYSTEM), *ask, build.static(f"role{n % _ROLES}", 8)],
            180,
        )
        for n in range(experts)
    ]
    answers = [build.answer(one) for one in said]
    build.call(
        "summary",
        [build.static("summarizer", _SYSTEM), build.static("summarize", 45), *ask, *answers],
        120,
    )
    return Batch("map-reduce", tuple(build.calls), rows, _contexts(rows, context))


def debate(rows: int, agents: int = 3, rounds: int = 2, context: int = 0) -> Batch:
    """Agents with roles answer, then read each other's answers and revise."""
    build = Builder()
    ask = _question(build, context)
    head = build.static("assistant", 10)
    prompts = [[head, *ask, build.static(f"role{n % _ROLES}", 8)] for n in range(agents)]
    for turn in range(rounds):
        now = [build.call(f"agent{n}.{turn}", prompts[n], 180) for n in range(agents)]
        for n in range(agents):
            others = [build.answer(one) for one in now if one != now[n]]
            prompts[n] += [
                build.answer(now[n]), build.static("others", 15), *others,
                build.static("revise", 45),
            ]  # fmt: skip
    return Batch("debate", tuple(build.calls), rows, _contexts(rows, context))


def _question(build: Builder, context: int) -> list[Slot]:
    """Return the parts of a prompt that ask the question, with its context if there is one."""
    if not context:
        return [build.static("question", 20), build.column("question", 120)]
    return [
        build.static("context", 15), build.column("context", context),
        build.column("question", 30), build.static("explain", 25),
    ]  # fmt: skip


def _contexts(rows: int, context: int) -> dict[str, int]:
    return {"context": max(1, rows // 6)} if context else {}


def reflect(rows: int, critics: int = 2, context: int = 700) -> Batch:
    """An analyst drafts, critics comment one after the other, the analyst revises."""
    build = Builder()
    text = [build.column("context", context), build.column("question", 30)]
    first = [build.static("analyst", 170), build.static("draft", 60), *text]
    draft = build.call("draft", first, 220)
    comments: list[Slot] = []
    for n in range(critics):
        head = [build.static(f"critic{n}", 130), build.static(f"comment{n}", 40)]
        said = build.call(f"critic{n}", [*head, *text, build.answer(draft), *comments], 150)
        comments.append(build.answer(said))
    build.call("final", [*first, build.answer(draft), build.static("revise", 35), *comments], 220)
    return Batch("reflect", tuple(build.calls), rows, _contexts(rows, context))


def iterative(rows: int, chunks: int = 6) -> Batch:
    """A summarizer reads chunk after chunk and refines its summary."""
    build = Builder()
    before: list[Slot] = []
    for n in range(chunks):
        head = [build.static("assistant", 10), build.static("refine" if n else "begin", 190)]
        said = build.call(f"step{n}", [*head, *before, build.column(f"chunk{n}", 1000)], 250)
        before = [build.answer(said)]
    return Batch("iterative", tuple(build.calls), rows)


def parallel(rows: int, experts: int = 7, chunks: int = 6) -> Batch:
    """Experts each read all chunks and summarize them, a writer combines the insights."""
    build = Builder()
    product = build.column("product", 200)
    found = []
    for n in range(experts):
        role = build.static(f"expert{n}", 300)
        said = [
            build.call(
                f"expert{n}.{c}",
                [role, build.static("extract", 160), product, build.column(f"chunk{c}", 1000)],
                200,
            )
            for c in range(chunks)
        ]
        answers = [build.answer(one) for one in said]
        head = [role, build.static("summarize", 150), product]
        found.append(build.call(f"expert{n}.summary", [*head, *answers], 250))
    head = [build.static("writer", 270), build.static("report", 200), product]
    build.call("report", [*head, *map(build.answer, found)], 400)
    return Batch("parallel", tuple(build.calls), rows)


def trading(rows: int, branches: int = 8, rounds: int = 2, prompts: int = 4) -> Batch:
    """Analysts, a debate, traders with debates about risks, a fund manager: 88 calls. prompts: of
    the traders; branches with one prompt repeat each other's calls. The fundamentals analyst reads
    the same on the next day.
    """
    build = Builder()
    stock = build.column("stock", 10)
    profile = build.column("profile", 150)
    found = {
        name: build.answer(_analyst(build, name, documents, tokens, head))
        for name, documents, tokens, head in (
            ("fundamentals", 4, 1500, [stock, profile]),
            ("market", 2, 1200, [stock]),
            ("news", 5, 1500, [stock]),
            ("social", 3, 1500, [stock]),
        )
    }
    read = [found[name] for name in ("fundamentals", "social", "market", "news")]
    plan = build.answer(_research(build, rounds, stock, read))
    final = [
        build.answer(_trader(build, n, n % prompts, rounds, stock, read, plan))
        for n in range(branches)
    ]
    build.call("fund", [build.static("fund", 180), stock, *final], 200)
    same = ("stock", "profile", *(f"fundamentals{n}" for n in range(4)))
    return Batch("trading", tuple(build.calls), rows, unchanged=frozenset(same))


def _analyst(build: Builder, name: str, documents: int, tokens: int, head: Sequence[Slot]) -> str:
    role = build.static(name, 210)
    said = [
        build.call(
            f"{name}.{n}",
            [role, build.static(f"{name}, extract{n}", 30), *head,
             build.column(f"{name}{n}", tokens)],
            200,
        )
        for n in range(documents)
    ]  # fmt: skip
    tail = [build.static(f"{name}, report", 40), *map(build.answer, said)]
    return build.call(f"{name}.report", [role, *head, *tail], 250)


def _research(build: Builder, rounds: int, stock: Slot, read: Sequence[Slot]) -> str:
    """Two researchers argue, each about the other's last argument; a manager decides."""
    sides = {
        one: [build.static(one, 210), stock, *read, build.static("argue", 40)]
        for one in ("bull", "bear")
    }
    argued: list[Slot] = []
    for turn in range(rounds):
        said = {one: build.answer(build.call(f"{one}.{turn}", sides[one], 250)) for one in sides}
        for one, other in (("bull", "bear"), ("bear", "bull")):
            sides[one] += [said[one], build.static("refute", 25), said[other]]
        argued += said.values()
    return build.call("manager", [build.static("manager", 230), stock, *argued], 250)


def _trader(
    build: Builder, number: int, kind: int, rounds: int, stock: Slot, read: Sequence[Slot],
    plan: Slot,
) -> str:  # fmt: skip
    decision = build.call(
        f"trader{number}",
        [build.static(f"trader{kind}", 200), stock, plan, build.static("decide", 45)],
        150,
    )
    prompts = {
        one: [build.static(one, tokens), stock, *read, build.answer(decision),
              build.static("debate", 90)]
        for one, tokens in (("risky", 130), ("safe", 90), ("neutral", 70))
    }  # fmt: skip
    argued: list[Slot] = []
    for turn in range(rounds):
        said = [
            build.answer(build.call(f"{one}{number}.{turn}", prompt, 150))
            for one, prompt in prompts.items()
        ]
        for own, prompt in zip(said, prompts.values(), strict=True):
            prompt += [own, build.static("arguments", 15), *said, build.static("refute", 25)]
        argued += said
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
