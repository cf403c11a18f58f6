"""One front's play: start, warm-up, programs, end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

from weft_bench.drive.gateway import CHAT
from weft_bench.peers.drive import Played, Script, drive, front_client
from weft_bench.peers.fronts import SESSION_HEADERS, Front
from weft_bench.peers.outcome import Outcome, outcomes, summarise
from weft_bench.peers.replicas import Replicas
from weft_bench.stack.processes import NotReady
from weft_bench.stack.proxies import started

ALL: Final = "all"
REST: Final = "rest"
LONG: Final = "long gaps"
CHATS: Final = "chats"
CHATS_ALONE: Final = "chats alone"
_START_S: Final = 60.0
# Sessions sent before the play, so that each front has met each replica.
_PROBES: Final = 12


def play(
    front: Front,
    scripts: Sequence[Script],
    replicas: Replicas,
    work: Path,
    on_call: Callable[[], None],
    *,
    install: bool,
) -> dict[str, dict[str, float]]:
    """Play the programs through a front and return its figures by slice.

    Chats are then played a second time, without the programs.

    Raises Absent if the front cannot be installed, NotReady if it does not start or answer.
    """
    name = front.name.replace("/", "-")
    running = started(front.proxy, replicas.urls, work, name=name, install=install, wait_s=_START_S)
    with running as (url, _):
        asyncio.run(_warm(url, replicas.place.model))
        replicas.reset(front.order)
        busy_s, late_s = replicas.device_seconds()
        played = asyncio.run(drive(url, front, scripts, uuid4().hex[:8], on_call))
        busy_now_s, late_now_s = replicas.device_seconds()
        late = (late_now_s - late_s) / ((busy_now_s - busy_s) or 1.0)
        found = outcomes(scripts, played.calls, replicas.answers(), replicas.block_tokens)
        chats = [script for script in scripts if script.chat]
        alone: list[Outcome] = []
        if chats:
            replicas.reset(front.order)
            beside = asyncio.run(drive(url, front, chats, uuid4().hex[:8], on_call))
            alone = outcomes(chats, beside.calls, replicas.answers(), replicas.block_tokens)
    figures = sliced(found, played, 1 / replicas.place.dilate, late)
    return figures | ({CHATS_ALONE: summarise(alone, 1 / replicas.place.dilate)} if alone else {})


def sliced(
    found: Sequence[Outcome], played: Played, scale: float, late: float
) -> dict[str, dict[str, float]]:
    """Return the figures of all programs, and of those with long gaps and the rest if there are
    any. Chats are a separate slice and not among all programs.

    scale: engine seconds per real second. late: share of their work by which emulated engines
    were late in the whole play.
    """
    chats = [one for one in found if one.chat]
    found = [one for one in found if not one.chat]
    figures = {ALL: summarise(found, scale)}
    answered = sum(not call.error for call in played.calls)
    figures[ALL]["calls_per_s"] = answered / played.duration_s if played.duration_s else 0.0
    figures[ALL]["duration_s"] = played.duration_s
    figures[ALL]["late"] = late
    if any(one.long_gaps for one in found):
        figures[REST] = summarise([one for one in found if not one.long_gaps], scale)
        figures[LONG] = summarise([one for one in found if one.long_gaps], scale)
    if chats:
        figures[CHATS] = summarise(chats, scale)
    return figures


async def _warm(url: str, model: str) -> None:
    """Wait until the front answers; a router may be up before it knows its replicas."""
    deadline = time.monotonic() + _START_S
    messages = [{"role": "user", "content": "Are you there?"}]
    body = {"model": model, "messages": messages, "max_tokens": 1}
    async with front_client(url) as client:
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
