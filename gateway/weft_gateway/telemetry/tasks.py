"""Background tasks that restart after a failure, and one-time work outside a client's request.

A supervised task runs until `Supervisor.stop`. If it raises, returns, or is cancelled by its own
code, the supervisor logs the failure, counts it and restarts the task after a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from weft_gateway.telemetry.aggregates import Counters

log = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]

# First and longest pause before a restart, in seconds. The longest is short compared with the
# lease of a call, so a failing task that renews leases has many attempts within one
# lease.
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
# A task that has run this long since its last failure counts as recovered.
RECOVERED_AFTER_S: Final = 30.0
_CANCEL_AGAIN_S: Final = 0.5


@dataclass(slots=True)
class TaskState:
    """A supervised task. failures: since the start. in_a_row: consecutive failures without a
    recovery. failed_s: time of the last failure on the loop's clock. last_error: the exception's
    type; its message may contain secrets and is only logged.
    """

    name: str
    failures: int = 0
    in_a_row: int = 0
    failed_s: float = 0.0
    last_error: str = ""


class Supervisor:
    """Keeps background tasks running. `failures`: a counter with the label `task`."""

    def __init__(
        self,
        failures: Counters,
        first_pause_s: float = FIRST_PAUSE_S,
        longest_pause_s: float = LONGEST_PAUSE_S,
        recovered_after_s: float = RECOVERED_AFTER_S,
    ) -> None:
        self._failures = failures
        self._first_pause_s = first_pause_s
        self._longest_pause_s = longest_pause_s
        self._recovered_after_s = recovered_after_s
        self._states: dict[str, TaskState] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    def start(self, name: str, work: Work) -> None:
        """Run `work` until `stop`. Raises ValueError if a task of this name runs."""
        if name in self._states:
            raise ValueError(f"a task named {name} is already running")
        state = self._states[name] = TaskState(name)
        self._failures.labels(name)  # Scraped as 0 before the first failure.
        self._tasks.add(asyncio.get_running_loop().create_task(self._keep(state, work), name=name))

    def failing(self) -> list[TaskState]:
        """Return the tasks that have failed and not yet recovered, in the order of their start."""
        now_s = asyncio.get_running_loop().time()
        return [state for state in self._states.values() if self._is_failing(state, now_s)]

    async def stop(self) -> None:
        """Cancel all tasks and wait until they have ended. Logs nothing.

        A library that uses cancellation for its timeouts can swallow this one, so the tasks are
        cancelled repeatedly until they have ended.
        """
        self._stopping = True
        left = self._tasks
        while left:
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN_S)
        self._tasks = set()
        self._states.clear()

    async def _keep(self, state: TaskState, work: Work) -> None:
        while not self._stopping:
            error: BaseException | None = None
            try:
                await work()
            except asyncio.CancelledError as cancelled:
                if self._stopping:
                    raise
                # The task's own code cancelled it.
                error = cancelled
            except Exception as failure:
                error = failure
            if self._stopping:
                return
            pause_s = self._failed(state, error)
            await asyncio.sleep(pause_s)

    def _failed(self, state: TaskState, error: BaseException | None) -> float:
        """Log and count a failure; None: the task returned. Return the pause before the restart, in
        seconds.
        """
        now_s = asyncio.get_running_loop().time()
        state.in_a_row = state.in_a_row + 1 if self._is_failing(state, now_s) else 1
        state.failures += 1
        state.failed_s = now_s
        state.last_error = _name(error)
        self._failures.labels(state.name).inc()
        # A float power overflows after a thousand failures in a row.
        doublings = min(state.in_a_row - 1, 30)
        pause_s = min(self._longest_pause_s, self._first_pause_s * 2.0**doublings)
        what = "returned" if error is None else "failed"
        log.error(
            "background task %s %s (%d in a row); restarting in %.1f s",
            state.name, what, state.in_a_row, pause_s, exc_info=error,
        )  # fmt: skip
        return pause_s

    def _is_failing(self, state: TaskState, now_s: float) -> bool:
        return state.in_a_row > 0 and now_s - state.failed_s < self._recovered_after_s


def _name(error: BaseException | None) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return type(error).__name__ if error is not None else "returned"


class Spawner:
    """One-time work outside the request that caused it. `name`: value of the label `task` under
    which `failures` counts exceptions.
    """

    def __init__(self, name: str, failures: Counters) -> None:
        self._name = name
        self._failures = failures
        self._tasks: set[asyncio.Task[object]] = set()
        failures.labels(name)

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run `work`. Its exceptions are logged and counted."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def settle(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` seconds for running work."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=timeout_s)

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        error = None
        with contextlib.suppress(asyncio.CancelledError):
            error = task.exception()
        if error is not None:
            self._failures.labels(self._name).inc()
            log.error("background work of %s failed", self._name, exc_info=error)
