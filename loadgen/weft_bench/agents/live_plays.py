"""Plays of the curve in real time: engines, a front, and sessions over HTTP in a closed loop."""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

from weft_bench.agents.contents import body_of, exact_chat
from weft_bench.agents.engines import STOCK, WEFT, Engines, Wanted, started
from weft_bench.agents.figures import Call, figures
from weft_bench.agents.fronts import SESSION_HEADERS, Front
from weft_bench.agents.scene import Point
from weft_bench.drive.client import Client, Refused
from weft_bench.drive.gateway import CHAT
from weft_bench.drive.loop import closed_loop
from weft_bench.stack.processes import NotReady
from weft_bench.stack.proxies import started as proxy_started
from weft_bench.studies.cells import Values
from weft_bench.workloads.cutting import ReadyProgram

log = logging.getLogger(__name__)

# Engine seconds between the first sessions.
SPREAD_S: Final = 0.5
# The peers accept any key, and some require one.
_KEY: Final = {"Authorization": "Bearer none"}
_LONGEST_S: Final = 3600.0
_START_S: Final = 120.0
# Sessions sent before the play, so that each front has met each engine.
_PROBES: Final = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """dilate: real seconds an engine second. limit_s: real seconds of a play, 0 for no limit."""

    dilate: float = 1.0
    limit_s: float = 0.0


@dataclass(slots=True)
class Played:
    """Result of a closed loop, in engine seconds. spans: begin and end of each session that ended.
    failed: sessions with an error, and what it was.
    """

    calls: list[Call] = field(default_factory=list)
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    until_s: float = 0.0


def play(
    wanted: Wanted,
    front: Front,
    sessions: Sequence[ReadyProgram],
    at: Point,
    pace: Pace,
    *,
    install: bool = True,
) -> Values:
    """Start engines and a front, play, and return the figures of the sessions that count.

    late: share of their work by which emulated engines were late. errors: sessions with an error.
    Raises Absent if the front cannot be installed, StackError, NotReady or OSError if something
    does not start, RuntimeError if no session ended.
    """
    with (
        started(wanted) as engines,
        tempfile.TemporaryDirectory() as work,
        _front(front, engines, Path(work), install=install) as url,
    ):
        asyncio.run(_warm(url, engines.model))
        busy_s, late_s = engines.device_seconds()
        played = asyncio.run(drive(url, engines.model, sessions, at, pace))
        busy_now_s, late_now_s = engines.device_seconds()
    for session, error in played.failed.items():
        log.warning("session %s failed: %s", session, error)
    counted = [one.id for one in sessions[: at.counted] if one.id in played.spans]
    if not counted:
        raise RuntimeError(f"no session ended: {next(iter(played.failed.values()), 'too short')}")
    values = dict(figures(played.calls, played.spans, counted, played.until_s))
    # Clients do not see it.
    del values["held_p95"]
    return {
        **values,
        "late": (late_now_s - late_s) / ((busy_now_s - busy_s) or 1.0),
        "errors": len(played.failed),
    }


@contextmanager
def _front(front: Front, engines: Engines, work: Path, *, install: bool) -> Iterator[str]:
    if front.proxy is None:
        yield engines.gateway
        return
    running = proxy_started(front.proxy, engines.urls, work, install=install, wait_s=_START_S)
    with running as (url, _):
        yield url


def wanted_for(front: Front, engines: Wanted) -> Wanted:
    """Return the engines of a front: with Weft's scheduler for Weft, else vLLM's own."""
    if front.proxy is None:
        return replace(engines, policy=front.order, scheduler=WEFT)
    return replace(engines, scheduler=STOCK)


async def drive(
    url: str, model: str, sessions: Sequence[ReadyProgram], at: Point, pace: Pace
) -> Played:
    """Play sessions in a closed loop until those that count have ended, or the limit."""
    played, run = Played(), uuid4().hex[:8]
    waiting = iter(sessions)
    left = {one.id for one in sessions[: at.counted]}
    begun = time.monotonic()

    def now() -> float:
        return (time.monotonic() - begun) / pace.dilate

    async def one_place(client: Client, number: int) -> None:
        await asyncio.sleep(SPREAD_S * number * pace.dilate)
        for session in waiting:
            start = now()
            error = await _session(client, model, session, f"{run}-{session.id}", now, played, pace)
            if error:
                played.failed[session.id] = error
            else:
                played.spans[session.id] = (start, now())
            left.discard(session.id)
            if not left:
                over.set()

    over = asyncio.Event()
    async with Client(url, _KEY, _LONGEST_S) as client:
        places = [asyncio.create_task(one_place(client, n)) for n in range(at.at_once)]
        try:
            async with asyncio.timeout(pace.limit_s or None):
                await over.wait()
        except TimeoutError:
            pass
        finally:
            played.until_s = now()
            for place in places:
                place.cancel()
            await asyncio.gather(*places, return_exceptions=True)
    return played


async def _session(
    client: Client,
    model: str,
    session: ReadyProgram,
    name: str,
    now: Callable[[], float],
    played: Played,
    pace: Pace,
) -> str:
    """Play a session. Returns the text of its error, "" without one."""
    headers = dict.fromkeys(SESSION_HEADERS, name)
    errors: list[str] = []

    async def ask(number: int) -> bool:
        ready = exact_chat(session.calls[number], f"{session.id}/{number}")
        body = body_of(ready.call, ready.call.messages, model, ready.max_tokens)
        stream = _Stream(now)
        sent_s = now()
        try:
            answer = await client.post(CHAT, body, headers, stream.event)
            if answer.status != 200:
                raise Refused(f"{answer.status}: {answer.text[:300]}")
            played.calls.append(stream.call(session.id, sent_s))
        except (OSError, ValueError, KeyError) as error:
            errors.append(f"{type(error).__name__}: {error}")
        return not errors

    gaps_s = [ready.call.gap_s * pace.dilate for ready in session.calls]
    await closed_loop(session, time.monotonic(), gaps_s.__getitem__, ask)
    # The front may not know this call; the session is over in any case.
    with suppress(OSError):
        await client.post(f"/finish_session?session_id={quote(name, safe='')}")
    return errors[0] if errors else ""


class _Stream:
    """A streamed answer. now: the clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._first_s = 0.0
        self._ended_s = 0.0
        self._usage: dict[str, Any] = {}

    def event(self, _name: str, data: bytes) -> None:
        """An event has arrived."""
        if not data.startswith(b"{"):
            return
        self._ended_s = self._now()
        found = json.loads(data)
        if found.get("error"):
            raise Refused(str(found["error"]))
        choices = found.get("choices") or ()
        if not self._first_s and any(one["delta"].get("content") for one in choices):
            self._first_s = self._ended_s
        self._usage = found.get("usage") or self._usage

    def call(self, session: str, sent_s: float) -> Call:
        """Return the whole answer as a call. Raises KeyError without its usage."""
        details = self._usage.get("prompt_tokens_details") or {}
        return Call(
            session,
            sent_s,
            self._first_s or self._ended_s,
            self._ended_s,
            self._usage["prompt_tokens"],
            details.get("cached_tokens") or 0,
            self._usage["completion_tokens"],
        )


async def _warm(url: str, model: str) -> None:
    """Wait until the front answers; a router may be up before it knows its engines."""
    deadline = time.monotonic() + _START_S
    messages = [{"role": "user", "content": "Are you there?"}]
    body = {"model": model, "messages": messages, "max_tokens": 1}
    async with Client(url, _KEY, _LONGEST_S) as client:
        for number in range(_PROBES):
            headers = dict.fromkeys(SESSION_HEADERS, f"probe-{uuid4().hex[:8]}-{number}")
            while True:
                try:
                    (await client.post(CHAT, body, headers)).json()
                    break
                except (OSError, ValueError) as error:
                    if time.monotonic() > deadline:
                        raise NotReady(f"it does not answer: {error}") from None
                await asyncio.sleep(0.2)
