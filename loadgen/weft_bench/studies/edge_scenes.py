"""Adversarial workloads on which Weft is expected to lose. Pure: programs from seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from weft_bench.studies.simulating import SYSTEMS, System
from weft_bench.workloads.schema import Part, TraceCall, TraceProgram
from weft_bench.workloads.streams import poisson_arrivals, stream
from weft_bench.workloads.workload import Dialogue

_SYSTEM: Final = Part("edge/system", 64, "system")


@dataclass(frozen=True, slots=True)
class Edge:
    """One adversarial workload.

    made: (seed, number) to a program. rate: programs a second. figure: the figure in which Weft is
    expected to lose. rival, system: the opponent. why: the expected cause of the loss. slots,
    kv_blocks, replicas: of the engines, otherwise 8b-a100.
    """

    name: str
    what: str
    made: Callable[[int, int], TraceProgram]
    programs: int
    rate: float
    rival: str
    system: System
    why: str
    figure: str = "latency"
    slots: int = 16
    kv_blocks: int = 3310
    replicas: int = 1

    def play(self, seed: int, count: int) -> tuple[list[TraceProgram], list[float]]:
        """Return `count` programs and their arrivals, seconds."""
        made = [self.made(seed, number) for number in range(count)]
        return made, poisson_arrivals(stream(seed, "arrivals"), self.rate, count)


def _about(rng: Random, tokens: int) -> int:
    """Return the number of tokens, varied by up to a fifth."""
    return round(tokens * rng.uniform(0.8, 1.2))


def _dialogue(
    name: str, seed: int, number: int, calls: Sequence[tuple[int, int, float]], head: int = 0
) -> TraceProgram:
    """Return a program of one thread.

    calls: user tokens, answer tokens (both approximate), and the gap after the answer, seconds.
    head: tokens of a prefix that only this program has.
    """
    rng = stream(seed, f"{name}/{number}")
    chat = Dialogue(f"{name}-{seed}-{number}", (_SYSTEM,))
    if head:
        chat.say("user", _about(rng, head))
    for said, answered, gap in calls:
        chat.say("user", _about(rng, said))
        chat.call(_about(rng, answered), gap)
    return chat.program()


def _equals(seed: int, number: int) -> TraceProgram:
    return _dialogue("equals", seed, number, [(100, 150, 0.0)] * 8)


def _thrash(seed: int, number: int) -> TraceProgram:
    return _dialogue("thrash", seed, number, [(200, 60, 0.0)] * 12, head=9000)


def _long_start(seed: int, number: int) -> TraceProgram:
    """Every second program begins with one long answer, followed by short ones."""
    if number % 2:
        return _dialogue("start", seed, number, [(100, 1500, 0.0), *[(50, 10, 0.0)] * 8])
    return _dialogue("start", seed, number, [(100, 120, 0.0)] * 12)


def _whale(seed: int, number: int) -> TraceProgram:
    """One program in forty is thirty times as long as the others."""
    return _dialogue("whale", seed, number, [(60, 120, 0.0)] * (60 if number % 40 == 20 else 2))


def _light(seed: int, number: int) -> TraceProgram:
    return _dialogue("light", seed, number, [(300, 100, 1.0)] * 8, head=4000)


def _tiny(seed: int, number: int) -> TraceProgram:
    return _dialogue("tiny", seed, number, [(20, 3, 0.0)] * 20, head=600)


_DOCUMENTS: Final = 10


def _documents(seed: int, number: int) -> TraceProgram:
    """Two questions about one of a few long documents that programs share."""
    rng = stream(seed, f"documents/{number}")
    document = Part(f"edge/document/{rng.randrange(_DOCUMENTS)}", 9000, "system")
    chat = Dialogue(f"documents-{seed}-{number}", (_SYSTEM, document))
    for _ in range(2):
        chat.say("user", _about(rng, 60))
        chat.call(_about(rng, 40))
    return chat.program()


_WIDE: Final = 12


def _threads(seed: int, number: int) -> TraceProgram:
    """Every second program sends the same number of parallel calls, then one more with all answers.

    The others are one chain as long as such a thread.
    """
    name = f"threads-{seed}-{number}"
    rng = stream(seed, name)
    if number % 2:
        return _dialogue("threads", seed, number, [(80, 100, 0.0)] * 4)
    head = (_SYSTEM, Part(f"{name}/question", _about(rng, 200), "user"))
    wide = [
        TraceCall(parts=head, output_tokens=_about(rng, 60), after=(), answer=f"{name}/answer/{i}")
        for i in range(_WIDE)
    ]
    answers = tuple(Part(call.answer, call.output_tokens, "tool") for call in wide)
    last = [
        TraceCall(
            parts=(*head, *answers, Part(f"{name}/sum/{i}", 40, "user")),
            output_tokens=_about(rng, 60),
            after=tuple(range(_WIDE + i)),
        )
        for i in range(3)
    ]
    return TraceProgram(name, (*wide, *last))


_FCFS: Final = SYSTEMS["vllm-opt"]
_FIFO: Final = System("program_fifo")
EDGES: Final = (
    Edge(
        "equal programs in a burst",
        "60 programs of 8 equal calls within a second, 16 slots",
        _equals,
        60,
        60.0,
        "program_fifo",
        _FIFO,
        "before ends were observed, the least served program counts as the shortest, so equal "
        "programs take turns at first",
    ),
    Edge(
        "equal programs, overload",
        "150 programs of 8 equal calls, more than the engine can serve",
        _equals,
        150,
        1.6,
        "program_fifo",
        _FIFO,
        "before ends were observed, a new program goes before programs that are nearly done",
    ),
    Edge(
        "few long contexts, short cache",
        "24 programs of 12 short calls on 9,000 tokens each, blocks for five of them",
        _thrash,
        24,
        0.25,
        "program_fifo",
        _FIFO,
        "programs outside the cache run in the memory that is left, and each of their calls "
        "computes its context again",
    ),
    Edge(
        "long first call, then short ones",
        "100 programs; half of them begin with 1,500 tokens and continue with 8 calls of 10",
        _long_start,
        100,
        1.2,
        "mlfq",
        SYSTEMS["mlfq"],
        "the long start counts against all the short calls that follow; per call, each of them is "
        "short",
    ),
    Edge(
        "the tail of long programs",
        "240 programs of 2 calls, one in forty of 60: the slowest 1% count",
        _whale,
        240,
        4.0,
        "vllm-opt",
        _FCFS,
        "long programs pay for the gain of the short ones",
        figure="latency_p99",
    ),
    Edge(
        "light load",
        "40 programs of 8 calls with tools, the queue never has two calls",
        _light,
        40,
        0.1,
        "weft without tags",
        replace(SYSTEMS["weft"], tags=False),
        "there is nothing to order, and eviction by tags can only do harm",
    ),
    Edge(
        "tiny answers",
        "120 programs of 20 answers of 3 tokens on 600 tokens each, 4 slots",
        _tiny,
        120,
        4.0,
        "vllm-opt",
        _FCFS,
        "the calls are so short that any change of order costs more than it gains",
        slots=4,
    ),
    Edge(
        "documents that programs share",
        "240 programs that ask twice about one of 10 documents of 9,000 tokens, 4 replicas, each "
        "with blocks for five documents",
        _documents,
        240,
        6.0,
        "prefix_tree",
        replace(SYSTEMS["weft"], balancer="prefix_tree"),
        "a home chosen by load alone spreads every document to every replica; chosen by prefix, "
        "each replica keeps a few",
        replicas=4,
    ),
    Edge(
        "threads side by side",
        "80 programs; half of them send 12 parallel calls",
        _threads,
        80,
        2.2,
        "atlas",
        replace(SYSTEMS["weft"], order="atlas"),
        "the service of parallel threads counts as their sum, not as the path through them",
    ),
)
BY_NAME: Final = {edge.name: edge for edge in EDGES}
