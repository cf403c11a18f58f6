"""Coding-agent sessions: token counts, block hashes and times, without text.

A prompt becomes parts: what the session's prompts share has the same parts, and an edited or
compacted history has new ones behind the common prefix. Hashes are local to a session. Sharing
between sessions is modelled: sessions with tools of equal length have the same tools at the front
of every prompt. Sub-agents run beside each other while their session waits for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import shake_128
from struct import unpack
from typing import Any, Final

from weft_bench.workloads.schema import Part, TraceCall, TraceProgram

# Generated ids lie in [FIRST_ID, FIRST_ID + IDS), where all vocabularies have ordinary tokens.
FIRST_ID: Final = 300
IDS: Final = 1000
_REQUESTS_TOOLS: Final = "tool_use"
_SUB_AGENT: Final = "subagent"
# A session returns to an earlier history at most this many histories back.
_HISTORIES: Final = 8


def read(records: Iterable[Mapping[str, Any]]) -> Iterator[TraceProgram]:
    """Yield one program per session, at its recorded lengths.

    `think_time` before a call is the gap after the previous call. It may include a user's approval,
    so it is an upper bound on tool time.
    """
    for record in records:
        calls = _Session(record).calls()
        if calls:
            yield TraceProgram(f"coding-{record['id']}", tuple(calls))


@dataclass(slots=True)
class _Asked:
    """A request as a call. after: the calls that it waits for. ended_s: instant of its answer, from
    the session's start."""

    request: Mapping[str, Any]
    parts: tuple[Part, ...]
    after: tuple[int, ...]
    ended_s: float
    gap_s: float = 0.0


class _Session:
    """Turns the requests of a session into calls."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record = record
        self._prompts = _Prompts(str(record["id"]), int(record["block_size"]))
        self._asked: list[_Asked] = []

    def calls(self) -> list[TraceCall]:
        """Return the calls in an order in which each waits for earlier ones only."""
        last: int | None = None
        # The last calls of the sub-agents that the next request waits for.
        open_: list[int] = []
        for request in self._record["requests"]:
            if request.get("type") == _SUB_AGENT:
                open_ = self._sub_agent(request, last, open_)
            elif "in" in request and request.get("hash_ids"):
                before = open_ or ([] if last is None else [last])
                for number in open_:
                    self._wait(number, float(request.get("t") or 0.0))
                if not open_ and last is not None:
                    self._asked[last].gap_s = float(request.get("think_time", 0.0))
                last = self._ask(request, self._record, last, tuple(before), 0.0)
                open_ = []
        return [
            TraceCall(
                parts=one.parts,
                output_tokens=max(1, int(one.request["out"])),
                gap_s=one.gap_s,
                after=None if one.after == ((number - 1,) if number else ()) else one.after,
                ends_turn=one.request.get("stop") != _REQUESTS_TOOLS,
            )
            for number, one in enumerate(self._asked)
        ]

    def _sub_agent(
        self, agent: Mapping[str, Any], parent: int | None, others: list[int]
    ) -> list[int]:
        """Add the calls of a sub-agent. It starts after the parent's last call, or after those
        before it that had ended then. others: the last calls of the sub-agents before it, since the
        parent's last call. Returns these with its own, without those that it waited for.
        """
        requests = [one for one in agent.get("requests", ()) if "in" in one and one.get("hash_ids")]
        if not requests:
            return others
        began_s = float(agent["t"]) - float(agent.get("duration_ms") or 0.0) / 1000
        ended = [number for number in others if self._asked[number].ended_s <= began_s]
        before = ended or ([] if parent is None else [parent])
        for number in before:
            self._wait(number, began_s)
        last: int | None = None
        for request in requests:
            if last is not None:
                self._asked[last].gap_s = float(request.get("think_time", 0.0))
                before = [last]
            last = self._ask(request, agent, last, tuple(before), began_s)
        assert last is not None
        self._asked[last].ended_s = float(agent["t"])
        return [*(number for number in others if number not in ended), last]

    def _wait(self, number: int, until_s: float) -> None:
        """The gap after a call ends at this instant."""
        one = self._asked[number]
        one.gap_s = max(0.0, until_s - one.ended_s)

    def _ask(
        self,
        request: Mapping[str, Any],
        agent: Mapping[str, Any],
        previous: int | None,
        after: tuple[int, ...],
        began_s: float,
    ) -> int:
        """Add a call. Returns its number. previous: the agent's call before it."""
        fixed = (0, 0)
        before: Mapping[str, Any] = {}
        if previous is None:
            fixed = (int(agent.get("tool_tokens") or 0), int(agent.get("system_tokens") or 0))
        else:
            before = self._asked[previous].request
        parts = self._prompts.next(request["hash_ids"], fixed, before)
        ended_s = began_s + float(request.get("t") or 0.0) + float(request.get("api_time") or 0.0)
        self._asked.append(_Asked(request, parts, after, ended_s))
        return len(self._asked) - 1


@dataclass(slots=True)
class _History:
    """A prompt: its blocks, and the parts that cover them."""

    blocks: list[int] = field(default_factory=list)
    parts: tuple[Part, ...] = ()


class _Prompts:
    """Generates a session's prompts in order."""

    def __init__(self, name: str, block_tokens: int) -> None:
        self._name = name
        self._size = block_tokens
        self._histories: list[_History] = []
        self._made = 0

    def next(
        self, blocks: list[int], fixed: tuple[int, int], before: Mapping[str, Any]
    ) -> tuple[Part, ...]:
        """Return the parts of a prompt.

        fixed: the tokens of tools and of the system prompt in an agent's first prompt; else none.
        before: the request that it follows.

        The common prefix with an earlier prompt keeps its parts. The last answer follows, then
        the client's input: tool output if the answer requested tools, else the user's query.
        """
        best, kept = _History(), 0
        for history in reversed(self._histories):
            common = _common(history.blocks, blocks)
            if common > kept:
                best, kept = history, common
        parts = first_tokens(best.parts, kept * self._size)
        missing = len(blocks) - kept
        if not kept:
            tools = min(missing, fixed[0] // self._size)
            system = min(missing, sum(fixed) // self._size) - tools
            parts += self._part(f"tools/{fixed[0]}", tools, "system")
            parts += self._part(self._fresh(), system, "system")
            missing -= tools + system
        elif before:
            answer = min(missing, -(-int(before["out"]) // self._size))
            parts += self._part(self._fresh(), answer, "assistant")
            missing -= answer
        said = "tool" if before.get("stop") == _REQUESTS_TOOLS else "user"
        parts += self._part(self._fresh(), missing, said)
        if best.blocks and kept == len(best.blocks):
            self._histories.remove(best)
        self._histories = [*self._histories[1 - _HISTORIES :], _History(blocks, parts)]
        return parts

    def _part(self, name: str, blocks: int, kind: str) -> tuple[Part, ...]:
        return (Part(name, blocks * self._size, kind),) if blocks > 0 else ()

    def _fresh(self) -> str:
        self._made += 1
        return f"{self._name}/{self._made}"


def _common(one: list[int], other: list[int]) -> int:
    """Return the length of the common prefix."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def first_tokens(parts: Sequence[Part], tokens: int) -> tuple[Part, ...]:
    """Return the first tokens of a prompt."""
    found: list[Part] = []
    for part in parts:
        if tokens <= 0:
            break
        found.append(part if part.tokens <= tokens else Part(part.name, tokens, part.kind))
        tokens -= part.tokens
    return tuple(found)


@lru_cache(maxsize=4096)
def ids_of(name: str, count: int) -> tuple[int, ...]:
    """Return the token ids of a name's text. A shorter text is a prefix of a longer one."""
    digest = shake_128(name.encode()).digest(2 * count)
    return tuple(FIRST_ID + number % IDS for number in unpack(f">{count}H", digest))
