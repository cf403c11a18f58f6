"""The gateway's side of a run's process (`weft_run.limited`)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import orjson

log = logging.getLogger(__name__)

# Settings may contain secrets, and a process runs the expressions of clients.
_PASSED: Final = ("PATH", "LANG", "LC_ALL", "TMPDIR", "TZ")
# The process has another current folder.
_PATHS: Final = [os.path.abspath(one) for one in sys.path if one]
# Of a report.
_MOST_BYTES: Final = 4 << 20
# Bytes of a lost process's errors that the log shows.
_SHOWN: Final = 4096
_REASONS: Final = {
    signal.SIGXCPU: "a template takes too long",
    None: "a frequent reason is that rows or templates need too much memory",
}


class ProcessLost(Exception):
    """The process has ended without an end of its runs. The message says why."""


class RunProcess:
    """One process in a group of its own. After its context, the group does not exist any more."""

    def __init__(self, folder: Path, job: dict[str, Any]) -> None:
        """folder: the current one of the process. job: see `weft_run.limited`."""
        self._folder = folder
        self._job = job
        self._process: asyncio.subprocess.Process | None = None
        self._errors = b""
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start the process. Raises OSError."""
        environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(_PATHS)
        # Each thread would otherwise reserve 64 MiB of the address space.
        environment["MALLOC_ARENA_MAX"] = "2"
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "weft_run.limited"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_MOST_BYTES,
            cwd=self._folder,
            env=environment,
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read_errors())
        # The job has the token, which no other process may read: neither arguments nor variables.
        self.send(self._job)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        if self._process is not None and self._reading is not None:
            await self._process.wait()
            await self._reading

    def kill(self) -> None:
        """Stop the process and all that it has started, at once."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. A process that has ended ignores it."""
        stream = None if self._process is None else self._process.stdin
        if stream is not None and not stream.is_closing():
            stream.write(orjson.dumps(message) + b"\n")

    async def reports(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the reports of the process, up to its end. Raises ProcessLost."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async for line in self._process.stdout:
                yield orjson.loads(line)
        except (ValueError, ConnectionError):
            # A line that is too long, or no JSON.
            self.kill()
        code = await self._process.wait()
        if code == 0:
            return
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        reason = _REASONS.get(signal.Signals(-code) if code < 0 else None, _REASONS[None])
        assert self._reading is not None
        await self._reading
        # Only the gateway's log has the errors, since they may contain paths.
        text = self._errors.decode("utf-8", "replace").strip()
        log.warning("a process of runs has ended (%s): %s", how, text or "no errors")
        raise ProcessLost(f"its process has ended ({how}); {reason}")

    async def _read_errors(self) -> None:
        """Keep the last errors of the process."""
        assert self._process is not None
        stream = self._process.stderr
        while stream is not None and (piece := await stream.read(_SHOWN)):
            self._errors = (self._errors + piece)[-_SHOWN:]
