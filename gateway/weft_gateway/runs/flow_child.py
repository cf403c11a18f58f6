"""The gateway's side of a worker process (`weft_gateway.runs.flow_worker`)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Final, Self

import msgspec

from weft_gateway.runs.flow_wire import LENGTH, FromWorker, ToWorker, frame, from_worker

log = logging.getLogger(__name__)

# Settings may contain secrets, and a worker runs the expressions of clients.
_PASSED: Final = ("PATH", "LANG", "LC_ALL", "TMPDIR", "TZ")
# A process loads its modules on a machine that may be busy.
_START_S: Final = 120.0
_MOST_BYTES: Final = 128 << 20
# How long a process takes to end after it has closed its output, seconds.
_END_S: Final = 5.0
# Bytes of a lost process's errors that the log shows.
_SHOWN: Final = 4096


class ChildLost(Exception):
    """The process has ended or does not react. The message says why."""


class Child:
    """One process. After its context, or after `stop`, the process does not exist any more."""

    def __init__(self, memory_bytes: int, stall_s: float) -> None:
        """memory_bytes: address space. stall_s: how long the process may be silent."""
        self._memory_bytes = memory_bytes
        self._stall_s = stall_s
        self._process: asyncio.subprocess.Process | None = None
        self._ready = False
        self._errors = b""
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the process. Raises OSError."""
        environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(one for one in sys.path if one)
        # Each thread would otherwise reserve 64 MiB of the address space.
        environment["MALLOC_ARENA_MAX"] = "2"
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "weft_gateway.runs.flow_worker"),
            str(self._memory_bytes),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        self._reading = asyncio.create_task(self._read_errors(self._process.stderr))

    async def stop(self) -> None:
        """Stop the process, and wait for its end."""
        self.kill()
        if self._process is not None and self._reading is not None:
            await self._process.wait()
            await self._reading

    async def _read_errors(self, stream: asyncio.StreamReader | None) -> None:
        """Keep the last errors of the process."""
        while stream is not None and (piece := await stream.read(_SHOWN)):
            self._errors = (self._errors + piece)[-_SHOWN:]

    async def _how_ended(self) -> str:
        """Return how the process has ended, and log its last errors. Only the gateway's log has
        them, since they may contain paths.
        """
        assert self._process is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._process.wait()
        await self.stop()
        code = self._process.returncode or 0
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        text = self._errors.decode("utf-8", "replace").strip()
        log.warning("a process of runs has ended (%s): %s", how, text or "no errors")
        return how

    def kill(self) -> None:
        """Stop the process at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()

    def send(self, message: ToWorker) -> None:
        """Send a message. A process that has ended ignores it."""
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(frame(message))

    async def receive(self) -> FromWorker:
        """Return the next message. Raises ChildLost."""
        if not self._ready:
            await self._next(_START_S)
            self._ready = True
        return await self._next(self._stall_s)

    async def _next(self, within_s: float) -> FromWorker:
        assert self._process is not None
        stream = self._process.stdout
        assert stream is not None
        try:
            async with asyncio.timeout(within_s):
                size = int.from_bytes(await stream.readexactly(LENGTH), "big")
                if size > _MOST_BYTES:
                    raise ChildLost("its process sent too much")
                message: FromWorker = from_worker(await stream.readexactly(size))
                return message
        except TimeoutError:
            what = f"its process did not react for {within_s:g} s: a template takes too long"
            raise ChildLost(what) from None
        except (asyncio.IncompleteReadError, ConnectionError, msgspec.MsgspecError):
            what = f"its process has ended ({await self._how_ended()})"
            reason = "a frequent reason is that rows or templates need too much memory"
            raise ChildLost(f"{what}; {reason}") from None
