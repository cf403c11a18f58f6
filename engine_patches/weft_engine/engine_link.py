"""The scheduler's end of the link between the engine-core process and the API server.

vLLM has no per-call report for streamed answers and no way to reach the scheduler from an HTTP
route. Therefore the scheduler opens two ZMQ DEALER sockets to a ROUTER that the API server binds:
one pushes reports from the scheduler's thread; the other one takes commands in a daemon thread,
because an idle engine does not step. Commands wait for the next `schedule()`. The daemon thread
also pushes the scheduler's state once a second for `/metrics`.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import zmq

from weft_engine.kv_command import KvCommand
from weft_engine.wire import CallReport

logger = logging.getLogger("vllm.weft")

# A report that cannot be sent at once is dropped: the engine never waits for the API server.
_HIGH_WATER_MARK: Final = 100_000
_POLL_MS: Final = 200
# Prometheus asks every few seconds at most.
_STATS_INTERVAL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Command:
    """A change that was requested over HTTP and takes effect between two steps.

    policy: the name of the new order, "" to keep the current one. kv: a command for one program's
    blocks. options: changes of the orders' options.
    """

    policy: str = ""
    reset_cache: bool = False
    kv: KvCommand | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


class EngineLink:
    """Sends reports, receives commands and answers state queries.

    validate: raises ValueError for an unknown policy, "" for the current one, or for an invalid
    change of options. Returns the options with the changes.
    """

    def __init__(
        self,
        address: str,
        state: Callable[[], dict[str, Any]],
        validate: Callable[[str, Mapping[str, Any]], Mapping[str, Any]],
    ) -> None:
        self._context = zmq.Context()
        self._address = address
        self._state = state
        self._validate = validate
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        # The order and the changes of options that queued commands ask for, with which an idle
        # engine starts.
        self._coming = ""
        self._changes: dict[str, Any] = {}
        self._reports = self._connect("reports")
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="weft-commands", daemon=True)
        self._thread.start()

    def send_report(self, report: CallReport) -> None:
        """Push one report; drop it if the API server does not read."""
        try:
            self._reports.send_multipart([b"report", report.to_json().encode()], zmq.DONTWAIT)
        except zmq.Again:
            logger.warning("the API server does not read; dropped the report of a call")

    def take_commands(self) -> list[Command]:
        """Commands that arrived since the last step."""
        taken = [self._commands.get() for _ in range(self._commands.qsize())]
        if taken:
            self._coming, self._changes = "", {}
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
        """Push the state for `/metrics`; drop it if the API server does not read."""
        try:
            socket.send_multipart([b"stats", json.dumps(self._state()).encode()], zmq.DONTWAIT)
        except zmq.Again:
            logger.debug("the API server does not read; dropped the engine's state")
        except Exception:  # an engine under construction has no state yet
            logger.debug("the engine's state could not be read", exc_info=True)

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if message.get("do") == "state":
            return self._state_to_come()
        if message.get("do") == "kv":
            self._commands.put(Command(kv=KvCommand(**message["kv"])))
            return {"accepted": True}
        policy = str(message.get("policy", ""))
        options = message.get("options") or {}
        if not isinstance(options, dict):
            raise ValueError("options must be an object")
        if policy or options:
            # Validate here, where an error can be answered.
            self._validate(policy, {**self._changes, **options})
            self._coming = policy or self._coming
            self._changes = {**self._changes, **options}
        reset_cache = bool(message.get("reset_cache", False))
        self._commands.put(Command(policy, reset_cache, options=options))
        state = self._state_to_come()
        changed = {"options": state.get("options", {})} if options else {}
        return {"policy": state["policy"], "reset_cache": reset_cache} | changed

    def _state_to_come(self) -> dict[str, Any]:
        """The state, with the order and the options of the next step and the number of queued
        commands. An idle engine takes no steps and so executes none."""
        state = self._state() | {"commands_waiting": self._commands.qsize()}
        if self._coming:
            state["policy"] = self._coming
        if self._changes:
            state["options"] = {**state.get("options", {}), **self._changes}
        return state
