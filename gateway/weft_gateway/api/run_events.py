"""The events of a run as server-sent events."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import orjson

from weft_gateway.errors import ApiError
from weft_gateway.model import ProgramKey
from weft_gateway.runs.flow_store import Run
from weft_gateway.runs.flows import Flows
from weft_gateway.telemetry.listeners import Listeners

_POLL_S: Final = 1.0
# Events that are written at once.
_A_TURN: Final = 256
_NONE: Final = array("Q")


async def events(
    flows: Flows,
    listeners: Listeners,
    key: ProgramKey,
    run_id: str,
    last_id: str,
    shown: Callable[[Run], dict[str, Any]],
) -> AsyncIterator[bytes]:
    """Yield the events of a run to its end. key: of its listeners. last_id: of the last event that
    the client has received, "" for none. An id is the number of the gateway's start with this run,
    and the number of the row's end since then.
    """
    # Registered only here: if the client has already disconnected, this generator neither starts
    # nor ends.
    listener = listeners.add(key)
    if listener is None:
        return
    began, at = _position(last_id)
    before = b""
    try:
        while True:
            run = flows.find(key.tenant, run_id)
            ended, ends = run.ended, flows.runner.ends.get(run_id, _NONE)
            if run.starts != began:
                began, at = run.starts, 0
            while at < len(ends):
                some = ends[at : at + _A_TURN]
                yield b"".join([_row(began, at + index, end) for index, end in enumerate(some, 1)])
                at += len(some)
            now = orjson.dumps(shown(run))
            if ended:
                yield b"event: end\ndata: %b\n\n" % now
                return
            if now != before:
                before = now
                yield b"event: progress\ndata: %b\n\n" % now
            # Another gateway may run it, whose news are in the store only.
            wait_s = listeners.heartbeat_s if flows.batches.store.owner else _POLL_S
            try:
                if await asyncio.wait_for(listener.get(), wait_s) is None:
                    return
            except TimeoutError:
                yield b": still here\n\n"
    except ApiError:
        # The run was deleted.
        return
    finally:
        listeners.remove(key, listener)


def listener_key(tenant: str, run_id: str) -> ProgramKey:
    """Return the key of the listeners of a run. Those of its program are others."""
    return ProgramKey(tenant, f"{run_id}/events")


def _position(last_id: str) -> tuple[int, int]:
    began, _, at = last_id.partition("-")
    is_id = began.isdecimal() and at.isdecimal() and len(last_id) <= 32
    return (int(began), int(at)) if is_id else (0, 0)


def _row(began: int, number: int, end: int) -> bytes:
    row, failed = divmod(end, 2)
    flag = b"true" if failed else b"false"
    return b'id: %d-%d\nevent: row\ndata: {"row":%d,"failed":%b}\n\n' % (began, number, row, flag)
