"""Runs `weft up` for tests: real engines, the real gateway, real processes."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import httpx
from support.waiting import DEADLINE_S, RUN_S
from weft_bench.stack.processes import free_port

ROOT = Path(__file__).resolve().parents[2]
SECRET = "test-secret"

# From prctl(2).
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _end_with_parent() -> None:
    """End the new process if the test run is killed. Runs in the new process."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


class Stack:
    """A running `weft up` that is ready. output: the lines that it has printed."""

    def __init__(self, *options: str, wait_s: float = RUN_S) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.output: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "weft_gateway.cli", "up", "--port", str(self.port), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={**os.environ, "WEFT_ENGINE_SECRET": SECRET, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(wait_s) or self.process.poll() is not None:
            self.stop()
            raise AssertionError("weft up did not become ready:\n" + "".join(self.output))

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            if line.startswith("Ctrl-C"):
                self._ready.set()
        self._ready.set()

    @property
    def replicas(self) -> list[str]:
        """The engines' URLs."""
        health = httpx.get(f"{self.url}/health").json()
        return [replica["url"] for replica in health["replicas"]]

    def violations(self) -> list[str]:
        """Return the violations that the gateway's integrity check finds."""
        found: list[str] = httpx.get(f"{self.url}/weft/state").json()["table"]["violations"]
        return found

    def stop(self) -> int:
        """Send Ctrl-C. Return the exit status."""
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(RUN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


def in_flight(stack: Stack) -> dict[str, int]:
    found: dict[str, int] = httpx.get(f"{stack.url}/weft/state").json()["table"]["in_flight"]
    return found


def engine_load(stack: Stack) -> int:
    """Return the number of requests that the engines run or queue."""
    total = 0
    for url in stack.replicas:
        state = httpx.get(f"{url}/weft/state", headers={"x-weft-secret": SECRET}).json()
        total += sum(engine["running"] + engine["waiting"] for engine in state["engines"])
    return total


def until(condition: Callable[[], bool], message: str, wait_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.02)


# All API keys that tests use; "" is no key.
KEYS = ("", "test", "none", "my-key")


def end_programs(url: str) -> int:
    """End every program that the API lists for one of the keys.

    Returns the number of programs that are left in the table: no client could end them.
    """
    for key in KEYS:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        with httpx.Client(base_url=url, headers=headers, timeout=DEADLINE_S) as client:
            while sessions := client.get("/v1/sessions", params={"limit": 1000}).json()["data"]:
                for session in sessions:
                    path = "/v1/sessions/" + quote(session["id"], safe="").replace(".", "%2E")
                    assert client.delete(path).status_code == 200, session
    return int(httpx.get(f"{url}/weft/state").json()["table"]["programs"]["alive"])
