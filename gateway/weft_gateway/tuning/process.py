"""Runs a replay in a process, so that neither its work nor its failure affects calls."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

import msgspec

from weft_gateway.tuning.replay.trace import Found, Limits, Trace

log = logging.getLogger(__name__)

# Settings may contain secrets; the replay needs none of them.
_SECRET: Final = "WEFT_"
_MOST_BYTES: Final = 1 << 20


class Failure(StrEnum):
    """Why a tuning failed. ENGINES: their state is unknown, so there was no replay. STORE: the
    values found could not be stored.
    """

    CRASH = "crash"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    JOURNAL = "journal"
    ENGINES = "engines"
    STORE = "store"


class ReplayError(Exception):
    """A replay without a result."""

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


async def replay(trace: Trace, limits: Limits) -> Found:
    """Return the best values of a trace. Raises ReplayError."""
    return await run_replay(msgspec.json.encode(trace), limits)


async def run_replay(trace: bytes, limits: Limits) -> Found:
    """Replay an encoded trace. Raises ReplayError. The process has ended when this returns."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "weft_gateway.tuning.replay",
        str(limits.memory_bytes),
        str(limits.cpu_s),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith(_SECRET)},
        limit=_MOST_BYTES,
    )
    try:
        async with asyncio.timeout(limits.within_s):
            return _found(await _line(process, trace), process)
    except TimeoutError:
        message = f"the replay did not end within {limits.within_s:g} s"
        raise ReplayError(Failure.TIMEOUT, message) from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _line(process: asyncio.subprocess.Process, trace: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    # A process that has ended cannot be written to; its status says why.
    with suppress(ConnectionError):
        process.stdin.write(trace + b"\n")
        await process.stdin.drain()
    try:
        line = await process.stdout.readline()
    except ValueError:
        raise ReplayError(Failure.CRASH, "the replay's result is too long") from None
    if not line:
        await process.wait()
    return line


def _found(line: bytes, process: asyncio.subprocess.Process) -> Found:
    if not line:
        raise ReplayError(Failure.CRASH, f"the replay ended with status {process.returncode}")
    try:
        answer: Any = msgspec.json.decode(line)
        if isinstance(answer, dict) and "error" in answer:
            error = str(answer["error"])
            failure = Failure.MEMORY if error.startswith("MemoryError") else Failure.JOURNAL
            raise ReplayError(failure, f"the replay failed: {error}")
        return msgspec.convert(answer, Found)
    except msgspec.MsgspecError as error:
        raise ReplayError(Failure.CRASH, f"the replay's result is malformed: {error}") from None
