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
# Bytes of a lost process's errors that the log shows.
_SHOWN: Final = 4096


class ProcessLost(Exception):
    """The process has ended without an end of its runs. The message says why."""


class RunProcess:
    """One process in a group of its own. After its context, the group does not exist any more."""

    def __init__(self, folder: Path, job: dict[str, Any]) -> None:
        """folder: the current one of the process. job: see `weft_run.limited`."""
        self._folder = folder
        self._job = job
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        """Start the process. Raises OSError."""
        environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(_PATHS)
        # Each thread would otherwise reserve 64 MiB of the address space.
        environment["MALLOC_ARENA_MAX"] = "2"
        with (self._folder / "errors").open("wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "weft_run.limited"),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
                cwd=self._folder, env=environment, start_new_session=True,
            )  # fmt: skip
        # The job has the token, which no other process may read: neither arguments nor variables.
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(self._job) + b"\n")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        assert self._process is not None
        await self._process.wait()

    def kill(self) -> None:
        """Stop the process and all that it has started, at once."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def cancel(self) -> None:
        """Cancel the runs of the process."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.terminate()

    async def reports(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the reports of the process, up to its end. Raises ProcessLost."""
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            yield orjson.loads(line)
        code = await self._process.wait()
        if code == 0:
            # It has reported the end of its runs.
            return
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        # Only the gateway's log has the errors, since they may contain paths.
        text = (self._folder / "errors").read_bytes()[-_SHOWN:].decode("utf-8", "replace").strip()
        log.warning("a process of runs has ended (%s): %s", how, text or "no errors")
        reason = "a frequent reason is that rows or templates need too much memory"
        if -code == signal.SIGXCPU:
            reason = "a template takes too long"
        raise ProcessLost(f"its process has ended ({how}); {reason}")
