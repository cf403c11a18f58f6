"""The API server's end of the channel: keeps reports, forwards commands and states."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import zmq
import zmq.asyncio

from weft_engine.wire import CallReport

log = logging.getLogger(__name__)

# Reports kept for calls whose client has disconnected; the gateway fetches them within a second.
_KEPT_REPORTS: Final = 8192


class EngineLinkError(Exception):
    """An engine core did not answer, or refused a command."""


class ReportServer:
    """Binds `address` and serves one API server. Any number of engine cores connect.

    on_state: called with an engine core's number, from 0, and its state, each time that it sends
    it.
    """

    def __init__(
        self,
        address: str,
        on_state: Callable[[int, dict[str, Any]], None] = lambda engine, state: None,
    ) -> None:
        self._context = zmq.asyncio.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.bind(address)
        self._reports: OrderedDict[str, CallReport] = OrderedDict()
        self._waiters: dict[str, asyncio.Future[CallReport]] = {}
        self._on_state = on_state
        self._engines: dict[bytes, int] = {}
        self._numbers = itertools.count(1)
        self._replies: dict[tuple[bytes, bytes], asyncio.Future[dict[str, Any]]] = {}
        self._task = asyncio.create_task(self._read(), name="weft-report-hub")

    async def report(self, call: str, timeout_s: float) -> CallReport | None:
        """Return the latest report of a call; None if it does not arrive within `timeout_s`."""
        known = self._reports.get(call)
        if known is not None:
            return known
        future = self._waiters.get(call)
        if future is None:
            future = asyncio.get_running_loop().create_future()
            self._waiters[call] = future
        try:
            return await asyncio.wait_for(asyncio.shield(future), timeout_s)
        except TimeoutError:
            return None
        finally:
            if self._waiters.get(call) is future and not future.done():
                del self._waiters[call]

    async def command(
        self, message: dict[str, Any], timeout_s: float = 5.0
    ) -> list[dict[str, Any]]:
        """Send a command to every engine core and gather the replies.

        Raises EngineLinkError if no core is connected, one does not answer in time, or one refuses.
        """
        if not self._engines:
            raise EngineLinkError("no engine core has connected to the channel")
        number = str(next(self._numbers)).encode()
        futures = []
        for engine in self._engines:
            future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
            self._replies[engine, number] = future
            futures.append(future)
            await self._router.send_multipart([engine, number, json.dumps(message).encode()])
        try:
            replies = await asyncio.wait_for(asyncio.gather(*futures), timeout_s)
        except TimeoutError:
            raise EngineLinkError("an engine core did not answer in time") from None
        finally:
            for engine in self._engines:
                self._replies.pop((engine, number), None)
        for reply in replies:
            if "error" in reply:
                raise EngineLinkError(str(reply["error"]))
        return list(replies)

    async def close(self) -> None:
        """Stop reading and free the address."""
        self._task.cancel()
        self._router.close(linger=0)
        self._context.term()

    async def _read(self) -> None:
        while True:
            sender, kind, body = await self._router.recv_multipart()
            if kind == b"report":
                try:
                    self._keep(CallReport.from_json(body))
                except ValueError as error:
                    # A malformed report must not affect later calls.
                    log.warning("a malformed report was dropped: %s", error)
            elif kind == b"hello":
                self._engines.setdefault(sender, len(self._engines))
            elif kind == b"stats":
                engine = self._engines.setdefault(sender, len(self._engines))
                self._on_state(engine, json.loads(body))
            else:
                future = self._replies.get((sender, kind))
                if future is not None and not future.done():
                    future.set_result(json.loads(body))

    def _keep(self, report: CallReport) -> None:
        self._reports[report.call] = report
        self._reports.move_to_end(report.call)
        while len(self._reports) > _KEPT_REPORTS:
            self._reports.popitem(last=False)
        future = self._waiters.pop(report.call, None)
        if future is not None and not future.done():
            future.set_result(report)
