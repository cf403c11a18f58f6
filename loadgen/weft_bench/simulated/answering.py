"""One call in progress: writes its tokens to the client and applies its fault."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from weft_engine.wire import CallReport

from weft_bench.simulated import http
from weft_bench.simulated.dialects import Dialect
from weft_bench.simulated.dialects.base import Usage
from weft_bench.simulated.faults import Fault
from weft_bench.simulated.service import Service
from weft_bench.simulated.tokens import TOKEN_BYTES

# The exit status of a process that a fault has ended.
CRASHED: Final = 70


class Wire(Protocol):
    """A client's connection as an answer uses it."""

    def write(self, data: bytes) -> None:
        """Send bytes."""
        ...

    def close(self) -> None:
        """Close the connection, even if the answer is incomplete."""
        ...

    def answered(self) -> None:
        """Mark the answer as complete."""
        ...


class Answering:
    """Passes a call to the engine and writes its answer to the wire.

    Each token is one write in one turn of the event loop. A proxy thus sees many small reads, as
    with an engine's steps, and not one large read. call: the call's name in the report channel, or
    "". As in the plugin's middleware, only named calls get a report.
    """

    def __init__(
        self, service: Service, wire: Wire, answer: Dialect, call: str, fault: Fault | None
    ) -> None:
        self._service = service
        self._wire = wire
        self._answer = answer
        self._call = call
        self._fault = fault
        self._name = ""
        self._given = 0
        self._written = 0
        self._held = False
        self._open = True
        self._writable = True
        self._writes: deque[Callable[[], bytes]] = deque()
        self._ends = False
        self._timer: asyncio.Handle | None = None
        self._loop = asyncio.get_running_loop()

    def begin(self, body: Mapping[str, Any]) -> None:
        """Apply a fault that acts at once, or pass the call to the engine."""
        kind = self._fault.kind if self._fault else ""
        if kind == "crash":
            os._exit(CRASHED)
        if kind == "500":
            self._wire.write(http.error(500, "a simulated fault"))
            self._close()
            return
        self._service.counters.running += 1
        self._held = kind in ("hang", "slow")
        if self._fault is not None and kind == "slow":
            self._timer = self._service.pace.later(self._fault.delay_s, self._release)
        self._name = self._service.begin(self._answer, self._call, body, self)

    def gone(self) -> None:
        """Abort the call in the engine because the client disconnected."""
        if not self._open:
            return
        self._open = False
        if self._timer is not None:
            self._timer.cancel()
        self._writes.clear()
        if self._name:
            self._service.counters.running -= 1
            self._service.counters.aborted += 1
            self._service.pace.abort(self._name)

    def pause(self) -> None:
        """Stop writing: the client's buffer is full."""
        self._writable = False

    def resume(self) -> None:
        """Continue writing."""
        self._writable = True
        self._go_on()

    # The methods of Sink.

    def tokens(self, count: int) -> None:
        """See Sink."""
        answer = self._answer
        if not answer.asked.stream:
            return
        for number in range(self._given, self._given + count):
            self._writes.append(partial(self._token, number))
        self._given += count
        self._go_on()

    def ended(self, report: CallReport) -> None:
        """See Sink."""
        self._service.answered.add(self._answer.id, report)
        usage = Usage(report.prompt_tokens, report.cached_tokens, report.output_tokens)
        told = report if self._call else None
        whole = self._close_stream if self._answer.asked.stream else self._plain
        self._writes.append(partial(whole, usage, told))
        self._ends = True
        self._go_on()

    # The bytes of the answer.

    def _token(self, number: int) -> bytes:
        answer = self._answer
        frame = b""
        if not number:
            prompt = len(answer.asked.prompt) // TOKEN_BYTES
            opening = b"".join(map(http.chunk, answer.opening(Usage(prompt, 0, 0))))
            frame = http.STREAM_HEAD + opening
        return frame + http.chunk(answer.token(number))

    def _close_stream(self, usage: Usage, report: CallReport | None) -> bytes:
        end, last = self._answer.closing(usage)
        comment = b"" if report is None else http.chunk(http.report_comment(report))
        return http.chunk(end) + comment + http.chunk(last) + http.END_OF_BODY

    def _plain(self, usage: Usage, report: CallReport | None) -> bytes:
        headers = b"" if report is None else http.report_header(report)
        return http.response(200, self._answer.plain(usage), headers)

    # The order and time of the writes.

    def _release(self) -> None:
        self._timer = None
        self._held = False
        self._go_on()

    def _go_on(self) -> None:
        if self._timer is None and self._writes and not self._held and self._writable:
            self._write()

    def _write(self) -> None:
        self._timer = None
        if not self._writes or not self._writable:
            return
        data = self._writes.popleft()()
        last = self._ends and not self._writes
        if self._fault is not None and self._fault.kind == "cut" and self._cuts(last):
            # Send half of the piece, then close the connection.
            self._wire.write(data[: len(data) // 2])
            self.gone()
            self._wire.close()
            return
        self._wire.write(data)
        self._written += 1
        if last:
            self._service.counters.running -= 1
            self._close()
        elif self._writes:
            self._timer = self._loop.call_soon(self._write)

    def _cuts(self, last: bool) -> bool:
        """Return whether to cut here: in the middle of a stream, or in a plain answer."""
        return last or self._written >= self._answer.tokens // 2

    def _close(self) -> None:
        self._open = False
        self._wire.answered()
