"""The scheduler's end of the channel between the engine-core process and the API server.

vLLM carries no per-call report to streamed answers and has no way to reach the scheduler from an
HTTP route, so the scheduler opens two ZMQ DEALER sockets of its own to a ROUTER that the API
server binds: one to push reports, used by the scheduler's thread, one to take commands, used by a
daemon thread, since an idle engine does not step. Commands wait for the next `schedule()`. The
thread also pushes the scheduler's state once a second, for the API server's `/metrics`.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import zmq

from weft_engine.wire import CallReport

logger = logging.getLogger("vllm.weft")

# A report that cannot be sent at once is dropped: the engine never waits for its listeners.
_HIGH_WATER_MARK: Final = 100_000
_POLL_MS: Final = 200
# Prometheus asks every few seconds at most.
_STATS_INTERVAL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Command:
    """A change asked for over HTTP, carried out between two steps.

    kv: "", "retain", "release", "give_up", "forget" or "priority", for the blocks of `program`;
    ttl_s: how long to retain, or until the priority ends, seconds; 0: a priority without an end.
    priority: tiers to raise or lower. tokens: only the first so many of a context are to be
    retained, None for all.
    """

    policy: str = ""
    reset_cache: bool = False
    kv: str = ""
    program: str = ""
    ttl_s: float = 0.0
    priority: int = 0
    tokens: int | None = None


class EngineLink:
    """Sends reports, takes commands, answers questions about the state.

    validate: raises ValueError for a policy that cannot be had.
    """

    def __init__(
        self,
        address: str,
        state: Callable[[], dict[str, Any]],
        validate: Callable[[str], object],
    ) -> None:
        self._context = zmq.Context()
        self._address = address
        self._state = state
        self._validate = validate
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        # The order that a waiting command asks for: what an idle engine will begin with.
        self._coming = ""
        self._reports = self._connect("reports")
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="weft-commands", daemon=True)
        self._thread.start()

    def send_report(self, report: CallReport) -> None:
        """Push one report; drop it if nobody drains the channel."""
        try:
            self._reports.send_multipart([b"report", report.to_json().encode()], zmq.DONTWAIT)
        except zmq.Again:
            logger.warning("nobody reads the report channel; dropped the report of a call")

    def take_commands(self) -> list[Command]:
        """Commands that have come since the last step."""
        taken: list[Command] = []
        while True:
            try:
                taken.append(self._commands.get_nowait())
            except queue.Empty:
                break
        if taken:
            self._coming = ""
        return taken

    def close(self) -> None:
        """Stop the thread and close the sockets."""
        self._closed.set()
        self._thread.join(timeout=2)
        self._reports.close(linger=0)
        self._context.destroy(linger=0)

    def _connect(self, role: str) -> Any:
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.SNDHWM, _HIGH_WATER_MARK)
        socket.setsockopt(zmq.IDENTITY, f"{role}-{os.getpid()}-{id(self):x}".encode())
        socket.connect(self._address)
        return socket

    def _listen(self) -> None:
        socket = self._connect("commands")
        socket.send_multipart([b"hello", b"{}"])
        due = 0.0
        while not self._closed.is_set():
            if time.monotonic() >= due:
                due = time.monotonic() + _STATS_INTERVAL_S
                self._send_stats(socket)
            if not socket.poll(_POLL_MS):
                continue
            number, body = socket.recv_multipart()
            try:
                reply = self._answer(json.loads(body))
            except Exception as error:  # a bad command must not end the thread
                reply = {"error": str(error)}
            socket.send_multipart([number, json.dumps(reply).encode()])
        socket.close(linger=0)

    def _send_stats(self, socket: Any) -> None:
        """Push the state for `/metrics`; drop it if nobody drains the channel."""
        try:
            socket.send_multipart([b"stats", json.dumps(self._state()).encode()], zmq.DONTWAIT)
        except zmq.Again:
            logger.debug("nobody reads the channel; dropped the engine's state")
        except Exception:  # an engine that is just being built has no state yet
            logger.debug("the engine's state could not be read", exc_info=True)

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if message.get("do") == "state":
            return self._state_to_come()
        if message.get("do") == "kv":
            fields = ("kv", "program", "ttl_s", "priority", "tokens")
            self._commands.put(Command(**{name: message[name] for name in fields}))
            return {"accepted": True}
        policy = str(message.get("policy", ""))
        if policy:
            # Here, where it can be answered: the scheduler must not meet a wrong one.
            self._validate(policy)
            self._coming = policy
        command = Command(policy=policy, reset_cache=bool(message.get("reset_cache", False)))
        self._commands.put(command)
        return {"policy": self._state_to_come()["policy"], "reset_cache": command.reset_cache}

    def _state_to_come(self) -> dict[str, Any]:
        """The state, with the order of the next step, and how many commands wait for that step: an
        idle engine takes none, since it takes no steps."""
        state = self._state()
        waiting = {"commands_waiting": self._commands.qsize()}
        return state | waiting | ({"policy": self._coming} if self._coming else {})
