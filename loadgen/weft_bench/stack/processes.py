"""Processes of a bench: started, awaited by a condition, and ended by their id."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
from weft_deploy.local.ports import free_ports, reserve

_STOPS: Final = (signal.SIGINT, signal.SIGTERM)


class NotReady(Exception):
    """A process ended or did not answer in time. The message contains the end of its log."""


def free_port() -> int:
    """Return a free port whose successor is free too. Both stay reserved for some seconds."""
    while True:
        (port,) = free_ports(1)
        with contextlib.suppress(OSError, OverflowError):
            reserve(port + 1)
            return port


@contextmanager
def running(
    command: Sequence[str],
    ready_url: str,
    log: Path,
    environment: Mapping[str, str] | None = None,
    wait_s: float = 120.0,
    stop_s: float = 10.0,
) -> Iterator[int]:
    """Run a command during the block. Yields its process id once `ready_url` answers 200.

    wait_s: time limit for its start. stop_s: time limit for its end, after which it is killed.
    Raises NotReady.
    """
    process: subprocess.Popen[bytes] | None = None
    try:
        with _stops_deferred(), log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment) if environment is not None else None,
                start_new_session=True,
            )
        deadline = time.monotonic() + wait_s
        while not _answers(ready_url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise NotReady(log.read_text(errors="replace")[-4000:])
            time.sleep(0.1)
        yield process.pid
    finally:
        if process is not None:
            _end(process, stop_s)


@contextmanager
def _stops_deferred() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM after the block, so that a starting child gets an owner first.

    A signal mask does not work: the kernel delivers a signal to any thread that does not block it,
    and Python then runs the handler in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in _STOPS}
    for stop in _STOPS:
        signal.signal(stop, lambda number, frame: received.append(number))
    try:
        yield
    finally:
        for stop, handler in before.items():
            signal.signal(stop, handler)
        for number in received:
            signal.raise_signal(number)


def _end(process: subprocess.Popen[bytes], wait_s: float) -> None:
    """Stop a child and its helpers, which share its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process group, seconds; 0 if the system does not report it.

    A busy machine affects CPU time less than rates and latencies.
    """
    used = 0.0
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name, in parentheses, may contain spaces.
            fields = file.read_text().rpartition(")")[2].split()
            if int(fields[2]) == pid:
                used += _clock(int(file.parent.name))
    return used


def _clock(pid: int) -> float:
    """Read a process's CPU clock, in nanoseconds.

    /proc counts in hundredths of a second, in which a gateway serves a hundred calls. The clock id
    is that of clock_getcpuclockid(3) on Linux.
    """
    return time.clock_gettime((~pid << 3) | 2)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
