"""The workloads of Agentix, section 6.1 and Figure 11: chat, tool use, tree search, and a mixture.

The paper gives means and the longest program. The distributions around them are our choice: long
tails, as in Figure 11. Input lengths are taken as new prompt tokens: the tokens that a prompt adds
to the prompts and answers of the calls that it waits for. Only this reading allows inputs of 256
tokens in a chat of 6.66 calls with answers of 277 tokens. The paper gives no time between calls:
chats have no gaps here, and tools take as long as in Sutradhara's BFCL trace (section 5.1).
"""

from __future__ import annotations

from typing import Final

from weft_bench.workloads.draws import LongTail, TwoPhase, pick, popularity
from weft_bench.workloads.schema import Part, TraceCall, TraceProgram
from weft_bench.workloads.streams import stream
from weft_bench.workloads.workload import Dialogue, Workload, purposes

_SECTION: Final = "Agentix, section 6.1, Figure 11"
TOOL_S: Final = TwoPhase(mean=1.09, variance=1.7, quick=0.6)

_CHAT_SYSTEM: Final = Part("sharegpt/system", 40, "system")
_CHAT_CALLS: Final = LongTail(6.66, 1.2, 0.5, 80.49)
# The system prompt counts as new in a program's first call.
_CHAT_ASKED: Final = LongTail(256 - _CHAT_SYSTEM.tokens / 6.66, 1.5, 2, 6000)
_CHAT_ANSWER: Final = LongTail(277, 0.9, 2, 2000)


def sharegpt(seed: int, number: int) -> TraceProgram:
    """Return one conversation between a user and a model. All share one small system prompt."""
    draw = purposes(seed, f"sharegpt/{number}")
    asked, answers = draw("asked"), draw("answers")
    chat = Dialogue(f"sharegpt-{seed}-{number}", (_CHAT_SYSTEM,))
    for _ in range(_CHAT_CALLS.whole(draw("calls"))):
        chat.say("user", _CHAT_ASKED.whole(asked))
        chat.call(_CHAT_ANSWER.whole(answers))
    return chat.program()


_TOOL_SYSTEM: Final = Part("bfcl/system", 180, "system")
# Tasks use the tools of one or two of the benchmark's interfaces: about 18 functions of about 180
# tokens each. A few sets of tools are the most popular.
_TOOL_SETS: Final = popularity(20)
_TOOL_TOKENS: Final = tuple(3200 if rank % 2 else 6400 for rank in range(20))
_TOOL_HEAD: Final = _TOOL_SYSTEM.tokens + sum(
    share * tokens for share, tokens in zip(_TOOL_SETS, _TOOL_TOKENS, strict=True)
)
_TOOL_CALLS: Final = LongTail(10.75, 0.7, 0.5, 70.49)
_TOOL_SAID: Final = LongTail(735.06 - _TOOL_HEAD / 10.75, 1.0, 5, 4000)
_TOOL_ANSWER: Final = LongTail(34.14, 0.6, 4, 300)


def bfcl(seed: int, number: int) -> TraceProgram:
    """Return one task: long tool signatures, and many short answers that each call one tool."""
    draw = purposes(seed, f"bfcl/{number}")
    said, answers, gaps = draw("said"), draw("answers"), draw("gaps")
    tools = pick(draw("tools"), _TOOL_SETS)
    head = (_TOOL_SYSTEM, Part(f"bfcl/tools/{tools}", _TOOL_TOKENS[tools], "system"))
    task = Dialogue(f"bfcl-{seed}-{number}", head)
    count = _TOOL_CALLS.whole(draw("calls"))
    for index in range(count):
        task.say("tool" if index else "user", _TOOL_SAID.whole(said))
        used = (TOOL_S.draw(gaps),) if index + 1 < count else ()
        task.call(_TOOL_ANSWER.whole(answers), sum(used), used)
    return task.program()


# Each round of the search samples this many thoughts from one node and judges each of them.
SAMPLES: Final = 5
_ROUNDS: Final = LongTail(159.7 / (2 * SAMPLES), 0.6, 0.5, 50.49)
_SEARCH_SYSTEM: Final = Part("lats/system", 400, "system")
_QUESTION: Final = LongTail(40, 0.4, 10, 150)
_REFLECTION: Final = LongTail(180, 0.6, 20, 1000)
_JUDGE: Final = Part("lats/judge", 120, "user")
_FIRST_SHARE: Final = 1 / _ROUNDS.mean
# Half of the calls are samples, and their new tokens are a reflection (in the first round, the
# whole prompt). The other half are judgements, and their new tokens are an observation and the
# instruction to judge.
_OBSERVATION: Final = LongTail(
    2 * 467.2
    - _FIRST_SHARE * (_SEARCH_SYSTEM.tokens + _QUESTION.mean)
    - (1 - _FIRST_SHARE) * _REFLECTION.mean
    - _JUDGE.tokens,
    0.8,
    20,
    4000,
)
_THOUGHT: Final = LongTail(72.6, 0.6, 5, 500)


def lats(seed: int, number: int) -> TraceProgram:
    """Return one Monte Carlo tree search for a question, as LATS on HotpotQA.

    Each round selects one node and samples five thoughts from it in parallel. Each thought looks
    something up and is judged with the result. A reflection then follows.
    """
    draw = purposes(seed, f"lats/{number}")
    name = f"lats-{seed}-{number}"
    tree, gaps = draw("tree"), draw("gaps")
    thoughts, found, reflections = draw("thoughts"), draw("found"), draw("reflections")
    question = Part(f"{name}/question", _QUESTION.whole(draw("question")), "user")
    # Each node is its context and the call that judged it.
    nodes: list[tuple[tuple[Part, ...], int]] = []
    calls: list[TraceCall] = []
    for turn in range(_ROUNDS.whole(draw("rounds"))):
        judged = tuple(range(len(calls) - SAMPLES, len(calls))) if calls else ()
        # Searches mostly continue from the newest nodes, which are also the deepest.
        chosen = nodes[_choose(tree.random(), len(nodes))] if nodes else None
        context, judge = chosen or ((_SEARCH_SYSTEM, question), None)
        asked = context
        if turn:
            length = _REFLECTION.whole(reflections)
            asked += (Part(f"{name}/reflection/{turn}", length, "user"),)
        after = tuple(sorted({*judged, *(() if judge is None else (judge,))}))
        first = len(calls)
        for sample in range(SAMPLES):
            answer = Part(f"{name}/thought/{turn}.{sample}", _THOUGHT.whole(thoughts), "assistant")
            used = TOOL_S.draw(gaps)
            calls.append(
                TraceCall(
                    parts=asked,
                    output_tokens=answer.tokens,
                    gap_s=used,
                    after=after,
                    answer=answer.name,
                    tool_s=(used,),
                )
            )
            seen = Part(f"{name}/found/{turn}.{sample}", _OBSERVATION.whole(found), "tool")
            nodes.append(((*asked, answer, seen), first + SAMPLES + sample))
        for sample, (context, _) in enumerate(nodes[-SAMPLES:]):
            calls.append(
                TraceCall(
                    parts=(*context, _JUDGE),
                    output_tokens=_THOUGHT.whole(thoughts),
                    after=(first + sample,),
                )
            )
    return TraceProgram(name, tuple(calls))


def _choose(share: float, count: int) -> int:
    """Select a node: with probability one half one of the last five, else any node."""
    return count - 1 - int(share * 2 * SAMPLES) if share < 0.5 else int((share - 0.5) * 2 * count)


_KINDS: Final = (sharegpt, bfcl, lats)


def mixed(seed: int, number: int) -> TraceProgram:
    """Return a program of one of the three workloads, each with the same probability."""
    return stream(seed, f"mixed/{number}").choice(_KINDS)(seed, number)


WORKLOADS: Final = (
    Workload(
        "sharegpt",
        _SECTION,
        sharegpt,
        {"calls mean": 6.66, "calls max": 80, "new prompt mean": 256, "output mean": 277},
    ),
    Workload(
        "bfcl",
        _SECTION,
        bfcl,
        {
            "calls mean": 10.75,
            "calls max": 70,
            "new prompt mean": 735.06,
            "output mean": 34.14,
        },
    ),
    Workload(
        "lats",
        _SECTION,
        lats,
        {"calls mean": 159.7, "new prompt mean": 467.2, "output mean": 72.6},
    ),
    Workload(
        "mixed",
        f"{_SECTION}: equal parts of the three",
        mixed,
        # The paper does not print this: it follows from the three.
        {"calls mean": (6.66 + 10.75 + 159.7) / 3},
    ),
)
