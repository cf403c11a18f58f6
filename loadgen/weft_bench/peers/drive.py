"""Plays programs at their arrivals through one front, and records each call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from weft_bench.drive.client import Client, Refused
from weft_bench.drive.gateway import CHAT
from weft_bench.drive.loop import at_arrivals, closed_loop
from weft_bench.peers.contents import known
from weft_bench.peers.fronts import SESSION_HEADERS, SLO_HEADER, Front
from weft_bench.peers.turns import UserTurn
from weft_bench.workloads.cutting import ReadyProgram

# The peers accept any key, and some require one.
_KEY: Final = {"Authorization": "Bearer none"}
_LONGEST_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Script:
    """A program as it is played, the same for every front.

    bodies, blocks: of its calls, made by `contents`. gaps_s: after each call, real seconds.
    arrival_s: from the start. alone_s: duration of the program alone, real seconds. long_gaps:
    whether its gaps were multiplied. chat: whether this is a single call beside the programs,
    without a session. turns: with their targets, none if turns have no targets.
    """

    program: ReadyProgram
    bodies: Sequence[bytes]
    blocks: Sequence[Sequence[int]]
    gaps_s: Sequence[float]
    arrival_s: float
    alone_s: float
    long_gaps: bool
    chat: bool = False
    turns: tuple[UserTurn, ...] = ()

    def slo(self, number: int) -> str:
        """Return the SLO class of a call, "" for none."""
        return next((t.slo for t in self.turns if t.first <= number <= t.last), "")


@dataclass(frozen=True, slots=True)
class Call:
    """One call as its client saw it, in seconds from the play's start.

    id: of the answer, or "" with an error. known_share: share of the prompt that the program had
    sent before, in answered calls.
    """

    program: int
    number: int
    sent_s: float
    answered_s: float
    id: str
    known_share: float
    error: str = ""


@dataclass(slots=True)
class Played:
    """Result of a play. calls: by program, in the order of sending."""

    duration_s: float = 0.0
    calls: list[Call] = field(default_factory=list)


def front_client(base_url: str) -> Client:
    """Return a client of a front."""
    return Client(base_url, _KEY, _LONGEST_S)


async def drive(
    base_url: str, front: Front, scripts: Sequence[Script], run: str, on_call: Callable[[], None]
) -> Played:
    """Play all programs. run: separates the sessions of different plays."""
    played = Played()

    async def program(number: int, begun: float) -> None:
        session = f"{run}-{number}"
        await _program(client, front, number, scripts[number], session, begun, played, on_call)

    async with front_client(base_url) as client:
        await asyncio.gather(*at_arrivals([script.arrival_s for script in scripts], program))
    played.duration_s = max((c.answered_s for c in played.calls), default=0.0)
    played.calls.sort(key=lambda c: (c.program, c.sent_s, c.number))
    return played


async def _program(
    client: Client,
    front: Front,
    index: int,
    script: Script,
    session: str,
    begun: float,
    played: Played,
    on_call: Callable[[], None],
) -> None:
    in_session = not script.chat
    headers = dict.fromkeys(SESSION_HEADERS, session) if front.keyed and in_session else {}
    sent: set[int] = set()

    async def ask(number: int) -> bool:
        blocks = script.blocks[number]
        share = known(blocks, sent) / len(blocks) if blocks else 0.0
        at = time.monotonic() - begun
        slo = script.slo(number)
        answer, error = await _answer(
            client, script.bodies[number], headers | ({SLO_HEADER: slo} if slo else {})
        )
        now = time.monotonic() - begun
        played.calls.append(Call(index, number, at, now, answer, share, error))
        if not error:
            sent.update(blocks)
        on_call()
        return not error

    await closed_loop(script.program, begun, script.gaps_s.__getitem__, ask)
    if front.ends and in_session:
        path = f"/finish_session?session_id={quote(session, safe='')}"
        # The front may ignore this call; the program is over in any case.
        await _answer(client, b"", {}, path)


async def _answer(
    client: Client, body: bytes, headers: dict[str, str], path: str = CHAT
) -> tuple[str, str]:
    """Return the answer's id and the error text."""
    try:
        answer = await client.post(path, body, headers)
        return str(answer.json().get("id", "")), ""
    except Refused as error:
        return "", str(error)
    except (OSError, AttributeError) as error:
        return "", f"{type(error).__name__}: {error}"
