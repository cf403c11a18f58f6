"""Text-to-SQL queries of several stages, as in HexGen-Flow (section 5.1): CHESS on BIRD, MAC-SQL on
Spider, and CHESS beside single calls.

The paper gives the number of calls of a query, with variance, and the range of its revisions. The
means of each stage are statistics of the traces that its authors released; those traces have no
licence and are not copied here. Ours are the shapes of the distributions, the order of the stages,
and the parts of a prompt: half of it is the same in all queries, and the database's schema and the
question follow, which later calls of the same stage repeat. MAC-SQL and the single calls have no
published lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from weft_bench.stats import mean, percentile
from weft_bench.workloads.draws import LongTail
from weft_bench.workloads.schema import Part, TraceCall, TraceProgram
from weft_bench.workloads.workload import Workload, purposes

_SECTION: Final = "HexGen-Flow, section 5.1"
# The share of prompt tokens that all queries have in common.
STATIC: Final = 0.51
# The share of a prompt that no other call of its query and stage repeats.
_OWN: Final = 0.1
_VARIED: Final = 0.3


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a workflow. prompt, answer: mean tokens. long: a share of answers that are longer,
    and their mean. repeats: whether the calls of a query begin alike; otherwise each has another
    beginning.
    """

    name: str
    prompt: int
    answer: float
    long: tuple[float, float] = (0.0, 0.0)
    repeats: bool = True

    def answered(self, rng: Random) -> int:
        """Return the tokens of one answer. Takes two numbers from the stream."""
        share, most = self.long
        usual = (self.answer - share * most) / (1 - share)
        is_long = rng.random() < share
        tail = LongTail(most, 0.25, most / 3, most * 2) if is_long else _tail(usual)
        return max(1, tail.whole(rng))


def _tail(middle: float) -> LongTail:
    return LongTail(middle, 0.35, max(0.6, middle / 5), middle * 4)


_RETRIEVER: Final = Stage("retriever", 306, 7)
_KEYWORDS: Final = Stage("keywords", 679, 49)
_CANDIDATE: Final = Stage("candidate", 10_768, 696, repeats=False)
_REVISE: Final = Stage("revise", 6_897, 156, (0.075, 1_080))
_TESTER: Final = Stage("unit tester", 275, 5)
_UNIT_TEST: Final = Stage("unit test", 1_169, 104)
_EVALUATE: Final = Stage("evaluate", 1_142, 30)

_CANDIDATES: Final = 2
_MOST_REVISIONS: Final = 10
_WITH_KEYWORDS: Final = 0.8
_WITH_TEST: Final = 0.96
# Means and variances of the numbers that vary little: 4, 3 and 5.1 calls.
_RETRIEVALS: Final = (3, 4, 4, 5)
_TESTERS: Final = (3,)
_EVALUATIONS: Final = (3, 4, 4, 5, 5, 5, 6, 6, 6, 7)


@dataclass(frozen=True, slots=True)
class Revisions:
    """The number of revisions of a query: binomial with a probability that differs by query (beta).
    Its mean and variance follow from those of the calls of a query.
    """

    first: float
    second: float

    def draw(self, rng: Random) -> int:
        """Return the number of revisions of one query."""
        share = rng.betavariate(self.first, self.second)
        return sum(rng.random() < share for _ in range(_MOST_REVISIONS))


def revisions(calls: float, variance: float) -> Revisions:
    """Return the revisions of queries with this mean and variance of calls. Raises ValueError for a
    variance that no such revisions have.
    """
    fixed = _CANDIDATES + _WITH_KEYWORDS + _WITH_TEST
    counts = (_RETRIEVALS, _TESTERS, _EVALUATIONS)
    rest = sum(mean(list(map(float, one))) for one in counts) + fixed
    varied = sum(_variance(one) for one in counts)
    varied += sum(share * (1 - share) for share in (_WITH_KEYWORDS, _WITH_TEST))
    share = (calls - rest) / _MOST_REVISIONS
    spread = (variance - varied) / (_MOST_REVISIONS * share * (1 - share))
    total = (_MOST_REVISIONS - 1) / (spread - 1) - 1
    if total <= 0:
        raise ValueError(f"{calls} calls with a variance of {variance} have no such revisions")
    return Revisions(share * total, (1 - share) * total)


def _variance(values: Sequence[int]) -> float:
    middle = mean(list(map(float, values)))
    return mean([(value - middle) ** 2 for value in values])


class _Query:
    """A query in construction. id: of the program."""

    def __init__(self, id_: str, draw: Callable[[str], Random]) -> None:
        self.id = id_
        self._lengths, self._answers = draw("lengths"), draw("answers")
        self._calls: list[TraceCall] = []
        self._contexts: dict[str, int] = {}
        self._last: tuple[int, ...] = ()

    def one(self, stage: Stage) -> None:
        """Add a call that waits for all before it."""
        self.parallel(stage, 1)

    def parallel(self, stage: Stage, count: int) -> None:
        """Add calls that run at the same time, after all calls before."""
        first = len(self._calls)
        for number in range(first, first + count):
            self._calls.append(
                TraceCall(
                    parts=self._prompt(stage, number, number - first),
                    output_tokens=stage.answered(self._answers),
                    after=self._last,
                )
            )
        self._last = tuple(range(first, first + count)) or self._last

    def _prompt(self, stage: Stage, number: int, place: int) -> tuple[Part, ...]:
        kind = stage.name if stage.repeats else f"{stage.name} {place}"
        static = round(STATIC * stage.prompt)
        own = _tail(_OWN * stage.prompt).whole(self._lengths)
        if kind not in self._contexts:
            rest = stage.prompt * (1 - STATIC - _OWN)
            context = LongTail(rest, _VARIED, rest / 4, rest * 4)
            self._contexts[kind] = context.whole(self._lengths)
        return (
            Part(f"text2sql/{kind}", static, "system"),
            Part(f"{self.id}/{kind}", self._contexts[kind], "user"),
            Part(f"{self.id}/{number}", max(1, own), "user"),
        )

    def program(self) -> TraceProgram:
        """Return the query."""
        return TraceProgram(self.id, tuple(self._calls))


@dataclass(frozen=True, slots=True)
class Chess:
    """The workflow CHESS: retrieval, candidates, revisions, unit tests, evaluation."""

    name: str
    calls: float
    variance: float

    def program(self, seed: int, number: int) -> TraceProgram:
        """Return one query."""
        draw = purposes(seed, f"{self.name}/{number}")
        counts = draw("counts")
        query = _Query(f"{self.name}-{seed}-{number}", draw)
        retrievals = counts.choice(_RETRIEVALS)
        for place in range(retrievals):
            query.one(_RETRIEVER)
            if place == 0 and counts.random() < _WITH_KEYWORDS:
                query.one(_KEYWORDS)
        query.parallel(_CANDIDATE, _CANDIDATES)
        for _ in range(revisions(self.calls, self.variance).draw(counts)):
            query.one(_REVISE)
        for place in range(counts.choice(_TESTERS)):
            query.one(_TESTER)
            if place == 0 and counts.random() < _WITH_TEST:
                query.one(_UNIT_TEST)
        query.parallel(_EVALUATE, counts.choice(_EVALUATIONS))
        return query.program()


_T3: Final = Chess("text2sql-3", 21.1, 16.3)

# MAC-SQL: a selector that cuts large schemas, a decomposer, and a refiner that runs while the query
# fails, at most three times.
_SELECTOR: Final = Stage("selector", 2_400, 130)
_DECOMPOSER: Final = Stage("decomposer", 3_200, 320)
_REFINER: Final = Stage("refiner", 1_900, 140)
_WITH_SELECTOR: Final = 0.5
_REFINED: Final = (0, 1, 1, 1, 2, 3)


def mac_sql(seed: int, number: int) -> TraceProgram:
    """Return one query of MAC-SQL on Spider."""
    draw = purposes(seed, f"text2sql-4/{number}")
    counts = draw("counts")
    query = _Query(f"text2sql-4-{seed}-{number}", draw)
    if counts.random() < _WITH_SELECTOR:
        query.one(_SELECTOR)
    query.one(_DECOMPOSER)
    for _ in range(counts.choice(_REFINED)):
        query.one(_REFINER)
    return query.program()


SINGLE: Final = "single"
_SINGLE: Final = Stage(SINGLE, 600, 220)


@dataclass(frozen=True, slots=True)
class Mixed:
    """Queries of trace 3 beside single calls. added: single calls per call of a query."""

    name: str
    added: float

    @property
    def queries(self) -> float:
        """The share of programs that are queries."""
        return 1 / (1 + self.added * _T3.calls)

    def program(self, seed: int, number: int) -> TraceProgram:
        """Return one query or one single call."""
        draw = purposes(seed, f"{self.name}/{number}")
        if draw("kind").random() < self.queries:
            found = _T3.program(seed, number)
            return TraceProgram(f"{self.name}-{seed}-{number}", found.calls)
        query = _Query(f"{self.name}-{seed}-{number}-{SINGLE}", draw)
        query.one(_SINGLE)
        return query.program()


_MIXED: Final = (Mixed("text2sql-5", 0.25), Mixed("text2sql-6", 0.5))
# The share of programs that are queries, by workload; 1 for the others.
QUERIES: Final[Mapping[str, float]] = {one.name: one.queries for one in _MIXED}


def query_figures(programs: Iterable[TraceProgram]) -> Mapping[str, float]:
    """Return the statistics that are published for these workloads only.

    calls variance: over queries. query prompt, query output: tokens of a query. static: the share
    of prompt tokens that all queries have in common. revise output p95: of one revision, tokens.
    """
    calls: list[float] = []
    prompts: list[float] = []
    outputs: list[float] = []
    revised: list[float] = []
    static = 0
    for program in programs:
        calls.append(len(program.calls))
        prompts.append(sum(part.tokens for call in program.calls for part in call.parts))
        outputs.append(sum(call.output_tokens for call in program.calls))
        for call in program.calls:
            static += call.parts[0].tokens
            if call.parts[0].name == f"text2sql/{_REVISE.name}":
                revised.append(call.output_tokens)
    middle = mean(calls)
    found = {
        "calls variance": mean([(count - middle) ** 2 for count in calls]),
        "query prompt mean": mean(prompts),
        "query prompt p95": percentile(prompts, 0.95),
        "query output mean": mean(outputs),
        "query output p95": percentile(outputs, 0.95),
        "static": static / (sum(prompts) or 1.0),
    }
    if revised:
        found |= {
            "revisions mean": len(revised) / len(calls),
            "revise output mean": mean(revised),
            "revise output p95": percentile(revised, 0.95),
        }
    return found


WORKLOADS: Final = (
    *(
        Workload(
            one.name,
            f"{_SECTION}: trace {one.name[-1]}, CHESS on BIRD",
            one.program,
            {"calls mean": one.calls, "calls variance": one.variance, "static": STATIC},
            query_figures,
        )
        for one in (Chess("text2sql-1", 19.4, 12.1), Chess("text2sql-2", 20.7, 14.7))
    ),
    Workload(
        _T3.name,
        f"{_SECTION}: trace 3, CHESS on BIRD",
        _T3.program,
        {
            "calls mean": _T3.calls,
            "calls variance": _T3.variance,
            "static": STATIC,
            "revisions mean": 5.0,
            "revise output mean": 156,
            "revise output p95": 1_009,
            "query prompt mean": 65_600,
            "query prompt p95": 110_000,
            "query output mean": 2_500,
            "query output p95": 3_600,
        },
        query_figures,
    ),
    Workload("text2sql-4", f"{_SECTION}: trace 4, MAC-SQL on Spider; no statistics", mac_sql, {}),
    *(
        Workload(
            one.name,
            f"{_SECTION}: trace 3 with {one.added:.0%} single calls; no statistics of these",
            one.program,
            {},
        )
        for one in _MIXED
    ),
)
