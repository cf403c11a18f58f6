"""Recorded workloads with limits, a slice of programs with slow tools, and single chats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_values
from itertools import chain, islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from weft_bench.peers.alone import alone_emulated, turns_alone
from weft_bench.peers.capacity import capacity
from weft_bench.peers.contents import as_chat, blocks_of, body_of
from weft_bench.peers.drive import Script
from weft_bench.peers.real import alone_real, ratio_of
from weft_bench.peers.replicas import Replicas
from weft_bench.peers.turns import with_roles, with_targets
from weft_bench.workloads.cutting import ReadyProgram, fit, fitting
from weft_bench.workloads.registry import WORKLOADS
from weft_bench.workloads.schema import Part, TraceCall, TraceError, TraceProgram
from weft_bench.workloads.streams import poisson_arrivals, stream
from weft_bench.workloads.traces.files import read_trace


@dataclass(frozen=True, slots=True)
class Scene:
    """One workload.

    folder: in the folder of data sets, or a file; "" for generated programs. programs: number of
    played programs. rate: of their arrivals, per second of the engines' clock, unless a load sets
    it. calls: limit of a program's calls; the first ones are played. longest_gap_s: limit of its
    gaps, engine seconds. beside: a second data set, of which every second program is.
    """

    name: str
    folder: str
    programs: int
    rate: float
    calls: int
    longest_gap_s: float
    beside: str = ""


@dataclass(frozen=True, slots=True)
class Cast:
    """The programs of one seed.

    rate: of their arrivals. capacity: the rate that the replicas complete, 0 if not measured. Both
    are programs per engine second.
    """

    scripts: list[Script]
    rate: float
    capacity: float = 0.0


@dataclass(frozen=True, slots=True)
class LongGaps:
    """Slow tools: multiplies the gaps of a share of the programs, up to `longest_s`, engine
    seconds.
    """

    share: float
    factor: float
    longest_s: float

    def of(self, programs: int, seed: int) -> frozenset[int]:
        """Return the numbers of the selected programs."""
        count = round(self.share * programs)
        return frozenset(stream(seed, "long gaps").sample(range(programs), count))


# Returns the real seconds that a program takes alone; see `weft_bench.peers.alone`.
Alone = Callable[[ReadyProgram, Sequence[bytes], Sequence[float]], float]

# At these rates sticky routing just keeps replicas of four slots and 3,000 blocks busy.
EMULATED_SCENES: Final = (
    Scene("coding_sessions", "coding_sessions", 36, 0.6, 8, 3.0),
    Scene("tau_airline", "tau_airline", 80, 3.0, 8, 3.0),
    Scene("tree_of_thoughts", "tree_of_thoughts", 30, 0.28, 50, 3.0),
    # There are only 20 and 25 of these runs, so each seed plays most of them.
    Scene("miniswe", "agent_calls/miniswe.jsonl.xz", 20, 0.3, 30, 3.0),
    Scene("magagent", "agent_calls/magagent.jsonl.xz", 20, 0.1, 30, 3.0),
    Scene("mooncake", "coding_sessions", 40, 0.8, 8, 3.0, beside="mooncake/conversation.jsonl.xz"),
)
# Played only by name: queries of `weft bench study hexgen-...`, with parallel calls and no gaps.
GENERATED_SCENES: Final = (Scene("text2sql-3", "", 16, 0.15, 64, 0.0),)
REAL_SCENES: Final = (
    Scene("coding_sessions", "coding_sessions", 24, 4.0, 4, 1.0),
    Scene("tau_airline", "tau_airline", 24, 8.0, 4, 1.0),
    Scene("tree_of_thoughts", "tree_of_thoughts", 16, 4.0, 30, 1.0),
)
QUICK_SCENES: Final = (Scene("tau_airline", "tau_airline", 12, 4.0, 3, 1.0),)


# Of a chat.
_CHAT_PROMPT: Final = 150
_CHAT_ANSWER: Final = 64


def cast(
    scene: Scene,
    data: Path,
    seed: int,
    replicas: Replicas,
    long_gaps: LongGaps,
    *,
    load: float = 0.0,
    rate: float = 0.0,
    chats: float = 0.0,
    scale: float = 0.0,
) -> Cast:
    """Return the scene's programs as they are played, the same for every front.

    data: the folder of data sets. load: rate of arrivals relative to the replicas' capacity; 0 for
    the scene's own rate. rate: a known rate of arrivals, which replaces both. chats: arrivals of
    single chats per engine second while programs arrive. scale: of the targets of turns, 0 for
    none. Raises TraceError, and ValueError for a target that no SLO class has.
    """
    name, programs = _programs(scene, data, seed, replicas.context)
    first = next(programs)
    programs = chain([first], programs)
    if scene.beside:
        _, others = read_trace(data / scene.beside, seed, replicas.context, 1)
        programs = chain.from_iterable(zip(programs, others, strict=False))
    ratio = ratio_of(first, replicas)
    alone = alone_emulated(replicas, ratio) if replicas.shapes else alone_real(replicas)
    fitted = _fitting(programs, scene, replicas.context, ratio, has_turns=scale > 0)
    ready = list(islice(fitted, scene.programs))
    if len(ready) < scene.programs:
        raise TraceError(f"{name} has {len(ready)} programs that fit, not {scene.programs}")
    slow = long_gaps.of(len(ready), seed)
    gapped = []
    for number, program in enumerate(ready):
        gaps = [min(scene.longest_gap_s, c.call.gap_s) for c in program.calls]
        # A program without gaps cannot have long ones.
        is_slow = number in slow and any(gaps[:-1])
        if is_slow:
            gaps = [min(long_gaps.longest_s, long_gaps.factor * gap) for gap in gaps]
        gapped.append((_with_gaps(program, gaps), is_slow))
    reached = rate / load if load else 0.0
    if load and not rate:
        reached = capacity([program for program, _ in gapped], replicas, ratio)
        rate = load * reached
    rate = rate or scene.rate
    arrivals = poisson_arrivals(stream(seed, "arrivals"), rate, len(ready))
    found = [
        _script(program, arrival, replicas, alone, long_gaps=is_slow)
        for (program, is_slow), arrival in zip(gapped, arrivals, strict=True)
    ]
    if scale:
        found = [_with_turns(script, replicas, ratio, scale) for script in found]
    if chats:
        found += [
            _script(program, arrival, replicas, alone, chat=True)
            for program, arrival in _chats(chats, arrivals[-1], seed, replicas.context, ratio)
        ]
    return Cast(found, rate, reached)


def _programs(
    scene: Scene, data: Path, seed: int, context: int
) -> tuple[str, Iterator[TraceProgram]]:
    if scene.folder:
        return read_trace(data / scene.folder, seed, context)
    # Some programs do not fit and are skipped.
    return scene.name, iter(WORKLOADS[scene.name].generate(seed, 2 * scene.programs))


def _with_gaps(program: ReadyProgram, gaps_s: Sequence[float]) -> ReadyProgram:
    calls = tuple(
        with_values(ready, call=replace(ready.call, gap_s=gap_s))
        for ready, gap_s in zip(program.calls, gaps_s, strict=True)
    )
    return with_values(program, calls=calls)


def _script(
    program: ReadyProgram,
    arrival_s: float,
    replicas: Replicas,
    alone: Alone,
    *,
    long_gaps: bool = False,
    chat: bool = False,
) -> Script:
    """Return a program as it is played. arrival_s: engine seconds, like its gaps."""
    dilate, model = replicas.place.dilate, replicas.place.model
    gaps = [ready.call.gap_s * dilate for ready in program.calls]
    bodies = [body_of(c.call, c.call.messages, model, c.max_tokens) for c in program.calls]
    blocks = [blocks_of(body, replicas.block_tokens) for body in bodies]
    alone_s = alone(program, bodies, gaps)
    return Script(program, bodies, blocks, gaps, arrival_s * dilate, alone_s, long_gaps, chat)


def _with_turns(script: Script, replicas: Replicas, ratio: float, scale: float) -> Script:
    """Return the script with the targets of its turns, and answers that call tools inside them."""
    program, model = script.program, replicas.place.model
    seconds = turns_alone(replicas, ratio, program, script.gaps_s)
    turns = with_targets(program, seconds, scale)
    last = {turn.last for turn in turns}
    bodies = [
        body_of(c.call, c.call.messages, model, c.max_tokens, calls_tool=number not in last)
        for number, c in enumerate(program.calls)
    ]
    return with_values(script, bodies=bodies, turns=turns)


def _chats(
    rate: float, until_s: float, seed: int, context: int, ratio: float
) -> Iterator[tuple[ReadyProgram, float]]:
    """Yield single chats with a Poisson process of arrivals, and their arrivals."""
    draw = stream(seed, "chats")
    arrival_s, number = draw.expovariate(rate), 0
    while arrival_s < until_s:
        name = f"chat-{seed}-{number}"
        call = TraceCall(parts=(Part(name, _CHAT_PROMPT, "user"),), output_tokens=_CHAT_ANSWER)
        ready = fit(TraceProgram(name, (as_chat(call),)), context, ratio)
        assert ready is not None
        yield ready, arrival_s
        arrival_s, number = arrival_s + draw.expovariate(rate), number + 1


def _fitting(
    programs: Iterator[TraceProgram],
    scene: Scene,
    context: int,
    ratio: float,
    *,
    has_turns: bool,
) -> Iterator[ReadyProgram]:
    def chats(program: TraceProgram) -> TraceProgram:
        calls = [as_chat(call, tools=has_turns) for call in program.calls[: scene.calls]]
        return replace(program, calls=tuple(with_roles(calls) if has_turns else calls))

    return fitting(map(chats, programs), context, ratio)
