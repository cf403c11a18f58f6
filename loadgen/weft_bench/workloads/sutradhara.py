"""The workloads of Sutradhara: its production trace and its two open benchmarks.

The trace is from section 3 and Figures 3 and 4. The benchmarks, BFCL v4 web search and SWE-Bench,
are from section 5.1. The paper publishes depths, fan-outs, prompt lengths, the tools' share of time
and the variance of their times. The distributions around them are our choice. The paper does not
print token counts of the two benchmarks: those of SWE-Bench are from the recorded issue-fixing runs
of LMCache's agent traces (6,016 prompt and 114 output tokens per call), and those of web search are
our choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from random import Random
from typing import Final

from weft_bench.stats import percentile
from weft_bench.workloads.draws import LogitShare, LongTail, TwoPhase, pick, popularity
from weft_bench.workloads.schema import Part, TraceCall, TraceProgram
from weft_bench.workloads.workload import Dialogue, Workload, purposes

# A nominal engine: a 14B model on one uncrowded A100. It converts the published shares of time to
# seconds, because traces contain the tools' times and not the engine's.
PREFILL_TOKENS_S: Final = 5000.0
DECODE_TOKENS_S: Final = 30.0

# Iterations: median 2, maximum 7, all with tools except the last. The paper's figure is a histogram
# without numbers. These shares have its median and its tail.
_DEPTHS: Final = (0.12, 0.50, 0.20, 0.09, 0.05, 0.03, 0.01)
# Number of tools that one iteration requests: median 2, maximum 21.
_FAN_OUT: Final = LongTail(2.75, 0.8, 0.5, 21.49)
# All prompts begin with the system prompt. Instructions for the current tools follow; they differ
# between iterations, and a few are common. The user's request with its company context comes last.
_COMMON: Final = Part("production/system", 5000, "system")
_INSTRUCTIONS: Final = popularity(24)
_INSTRUCTION_TOKENS: Final = tuple(4500 + 1000 * (rank % 6) for rank in range(24))
_ASKED: Final = LongTail(3600, 0.5, 200, 30_000)
# Tokens that all tools of one iteration return, after truncation.
_FOUND: Final = LongTail(8600, 0.4, 50, 30_000)
# An answer that requests tools is a fifth as long as a final answer.
_ASKING: Final = LongTail(110, 0.5, 20, 600)
_FINAL: Final = LongTail(550, 0.5, 50, 3000)
# The tools' share of the time to the final answer's first token: 32% at the median, 61% at p90, 85%
# at p99. Times of a tool spread around its median as a log-normal of 0.55: p75 is 1.45 and p90 is
# 2.02 times the median. The paper's six tools have 1.23 to 1.52 and 1.60 to 3.28.
_TOOLS_SHARE: Final = LogitShare(0.32, 1.0)
_TOOL_SPREAD: Final = 0.55
# Of this number of requests, the one with the most tool calls is replayed.
_OF: Final = 10


def production(seed: int, number: int) -> TraceProgram:
    """Return one request of the production trace.

    Its prompts are not append-only: the instructions in the middle change with the current tools,
    so that only the text before them is shared.
    """
    draw = purposes(seed, f"production/{number}")
    name = f"production-{seed}-{number}"
    system, fans, found = draw("system"), draw("fans"), draw("found")
    answers, gaps = draw("answers"), draw("gaps")
    history: tuple[Part, ...] = (Part(f"{name}/asked", _ASKED.whole(draw("asked")), "user"),)
    depth = 1 + pick(draw("depth"), _DEPTHS)
    calls: list[TraceCall] = []
    for turn in range(depth):
        kind = pick(system, _INSTRUCTIONS)
        instructions = Part(f"production/tools/{kind}", _INSTRUCTION_TOKENS[kind], "system")
        last = turn == depth - 1
        answer = Part(
            f"{name}/answer/{turn}", (_FINAL if last else _ASKING).whole(answers), "assistant"
        )
        fan = 0 if last else _FAN_OUT.whole(fans)
        calls.append(
            TraceCall(
                parts=(_COMMON, instructions, *history),
                output_tokens=answer.tokens,
                answer=answer.name,
                tool_s=tuple(gaps.lognormvariate(0.0, _TOOL_SPREAD) for _ in range(fan)),
            )
        )
        history += (answer,)
        each = max(1, _FOUND.whole(found) // fan) if fan else 0
        history += tuple(Part(f"{name}/found/{turn}.{tool}", each, "tool") for tool in range(fan))
    share = _TOOLS_SHARE.draw(draw("share"))
    return TraceProgram(name, tuple(_timed(calls, share)))


def production_wide(seed: int, number: int) -> TraceProgram:
    """Return the request with the most tool calls of ten of the production trace.

    Section 5.1 replays "a stratified sample of 120 requests, characterized by a high degree of
    tool-call fan-outs per request", without further details.
    """
    ten = (production(seed, _OF * number + place) for place in range(_OF))
    return max(ten, key=lambda program: sum(len(call.tool_s) for call in program.calls))


def _timed(calls: list[TraceCall], share: float) -> list[TraceCall]:
    """Return the calls with tools scaled to this share of the time to the final token."""
    longest = sum(max(call.tool_s, default=0.0) for call in calls)
    factor = engine_s(calls) * share / (1 - share) / longest if longest else 0.0
    timed = []
    for call in calls:
        tools = tuple(seconds * factor for seconds in call.tool_s)
        timed.append(
            TraceCall(
                parts=call.parts,
                output_tokens=call.output_tokens,
                answer=call.answer,
                gap_s=max(tools, default=0.0),
                tool_s=tools,
            )
        )
    return timed


def engine_s(calls: Iterable[TraceCall]) -> float:
    """Return a nominal engine's seconds until the last call's first token, with nothing cached."""
    done = list(calls)
    prompts = sum(part.tokens for call in done for part in call.parts)
    return prompts / PREFILL_TOKENS_S + sum(c.output_tokens for c in done[:-1]) / DECODE_TOKENS_S


def production_figures(programs: Iterable[TraceProgram]) -> Mapping[str, float]:
    """Return the statistics that the paper prints for this trace only.

    Shares are between 0 and 1. tools' share: of the time to the final answer's first token, over
    programs with tools. prompt before tools: part of a prompt that is known when the previous
    answer ends, over calls after tools.
    """
    shares: list[float] = []
    known: list[float] = []
    final: list[float] = []
    asking: list[float] = []
    for program in programs:
        tools = sum(call.gap_s for call in program.calls)
        if tools:
            shares.append(tools / (tools + engine_s(program.calls)))
        for call in program.calls:
            (asking if call.tool_s else final).append(float(call.output_tokens))
        for call in program.calls[1:]:
            whole = sum(part.tokens for part in call.parts)
            new = takewhile(lambda part: part.kind == "tool", reversed(call.parts))
            known.append(1 - sum(part.tokens for part in new) / whole)
    return {
        "tools' share p50": percentile(shares, 0.5),
        "tools' share p90": percentile(shares, 0.9),
        "tools' share p99": percentile(shares, 0.99),
        "prompt before tools p10": percentile(known, 0.1),
        "prompt before tools p90": percentile(known, 0.9),
        "final over asking output": percentile(final, 0.5) / (percentile(asking, 0.5) or 1.0),
    }


def _fan(rng: Random) -> int:
    """Return the number of tools that one iteration requests, about two."""
    return 1 + pick(rng, (0.3, 0.45, 0.2, 0.05))


@dataclass(frozen=True, slots=True)
class Steps:
    """A workload of tasks that are solved in several steps, each with about two tools.

    head: the system prompt. iterations: of a task. asked, answer, found: tokens of the task, of an
    answer and of one tool's result. tool_s: of one tool.
    """

    name: str
    head: Part
    iterations: LongTail
    asked: LongTail
    answer: LongTail
    found: LongTail
    tool_s: TwoPhase

    def program(self, seed: int, number: int) -> TraceProgram:
        """Return one task."""
        draw = purposes(seed, f"{self.name}/{number}")
        task = Dialogue(f"{self.name}-{seed}-{number}", (self.head,))
        task.say("user", self.asked.whole(draw("asked")))
        answers, fans = draw("answers"), draw("fans")
        gaps, results = draw("gaps"), draw("found")
        count = self.iterations.whole(draw("calls"))
        for index in range(count):
            last = index == count - 1
            used = () if last else tuple(self.tool_s.draw(gaps) for _ in range(_fan(fans)))
            task.call(self.answer.whole(answers), max(used, default=0.0), used)
            if used:
                task.say("tool", *(self.found.whole(results) for _ in used))
        return task.program()


# Questions that are searched for.
WEB_SEARCH: Final = Steps(
    "web_search",
    Part("web_search/system", 1500, "system"),
    iterations=LongTail(4.23, 0.45, 1.5, 14.49),
    asked=LongTail(60, 0.4, 10, 200),
    answer=LongTail(75, 0.6, 10, 600),
    found=LongTail(700, 0.7, 30, 5000),
    tool_s=TwoPhase(mean=1.09, variance=1.7, quick=0.6),
)
# Issues that are fixed.
SWE: Final = Steps(
    "swe",
    Part("swe/system", 1100, "system"),
    iterations=LongTail(20.0, 0.45, 2.5, 80.49),
    asked=LongTail(400, 0.8, 40, 4000),
    answer=LongTail(114, 0.6, 15, 900),
    found=LongTail(155, 1.3, 5, 6000),
    tool_s=TwoPhase(mean=0.29, variance=1.14, quick=0.1),
)

WORKLOADS: Final = (
    Workload(
        "production",
        "Sutradhara, sections 3 and 5.4.3, Figures 3 and 4",
        production,
        {
            "calls p50": 2,
            "calls max": 7,
            "fan-out p50": 2,
            "fan-out max": 21,
            "prompt p50": 20_000,
            "tool mean": 6.0,
            "tools' share p50": 0.32,
            "tools' share p90": 0.61,
            "tools' share p99": 0.85,
            "prompt before tools p10": 0.5,
            "prompt before tools p90": 0.8,
            "final over asking output": 5,
        },
        production_figures,
    ),
    Workload(
        "production_wide",
        "Sutradhara, section 5.1: requests of the production trace with a high tool-call fan-out",
        production_wide,
        {"calls max": 7, "fan-out max": 21},
    ),
    Workload(
        "web_search",
        "Sutradhara, section 5.1: BFCL v4 web search",
        WEB_SEARCH.program,
        {"calls mean": 4.23, "fan-out mean": 2, "tool mean": 1.09, "tool variance": 1.7},
    ),
    Workload(
        "swe",
        "Sutradhara, section 5.1: SWE-Bench",
        SWE.program,
        {"calls mean": 20.0, "fan-out mean": 2, "tool mean": 0.29, "tool variance": 1.14},
    ),
)
