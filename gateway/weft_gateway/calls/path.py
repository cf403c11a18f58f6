"""The path of a call: arrived, placed, opened, sent, relayed, closed, ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from starlette.types import Message, Send

from weft_gateway import errors
from weft_gateway.calls import relay
from weft_gateway.calls.begun import has_begun
from weft_gateway.calls.call import Call, Placed, Tap
from weft_gateway.calls.client import Disconnect
from weft_gateway.calls.engines import Engines
from weft_gateway.calls.lifecycle import Lifecycle, OpenCall
from weft_gateway.calls.observers import notify, taps
from weft_gateway.calls.placement import Placement
from weft_gateway.calls.relay import Step, StreamRelay
from weft_gateway.calls.spending import BudgetExhausted
from weft_gateway.engine.errors import ConnectFailed, ReplicaError
from weft_gateway.engine.pool import Exchange
from weft_gateway.engine.response import Headers
from weft_gateway.errors import ApiError
from weft_gateway.model import Outcome
from weft_gateway.policies.retry_budget import RetryBudget

# If a stream arrives faster than it is relayed, each piece takes a turn of the event loop. Smaller
# pieces take none: a turn costs more than relaying the output of one engine step.
PIECE_BYTES: Final = 16_384
LIGHT_PIECE_BYTES: Final = 12_288
# After the client's last frame, the engine has only its report left to send.
_END_WITHIN_S: Final = 1.0
# A held call looks for a replica this often. A placement takes less than 0.1 ms.
_LOOK_EVERY_S: Final = 0.5
# Pauses of a call that waits for a budget: at first, and at most.
_FIRST_PAUSE_S: Final = 0.05
_MOST_PAUSE_S: Final = 1.0


@dataclass(slots=True, eq=False)
class CallPath:
    """Serves calls.

    next_call: generates call ids. count_error: for metrics, by code. attempts: maximum replicas
    that a call tries. budget: limits these attempts over all calls. count_retry: for metrics, by
    result. hold_s: how long a call of a program that has begun waits for a replica.
    """

    placement: Placement
    lifecycle: Lifecycle
    engines: Engines
    next_call: Callable[[], str]
    count_error: Callable[[str], None]
    attempts: int
    budget: RetryBudget
    count_retry: Callable[[str], None]
    hold_s: float

    async def serve(self, call: Call, client: Disconnect, send: Send) -> None:
        """Serve a call that has been read. Raises ApiError, ReplicaError, TooDeep, UnsafeHead
        or TableUnavailable if the client has received nothing yet, ClientGone if it disconnected.

        Another replica gets the call only if the previous one provably read nothing of it, and if
        the retry budget allows it.
        """
        self.budget.add_call()
        call.client = client
        try:
            for arrived in call.hooks.arrived:
                if (pending := arrived(call)) is not None:
                    await pending
            for held in call.hooks.held:
                if (pending := held(call)) is not None:
                    await client.wait(pending)
            opened = await self._open(call, client)
            while True:
                exchange = self.engines.exchange(call)
                try:
                    async with opened:
                        # The call closes before the client can know that its answer is complete.
                        try:
                            for opened_hook in call.hooks.opened:
                                if (pending := opened_hook(call)) is not None:
                                    await client.wait(pending)
                            client.stops(exchange)
                            await self.engines.send(call, exchange)
                        except ConnectFailed as error:
                            opened = await self._elsewhere(call, opened, client, error)
                            continue
                        headers, is_stream = relay.start(call, exchange.status, exchange.headers)
                        if is_stream:
                            await send(_start(call, headers))
                            stream = StreamRelay(call, self._head)
                            last = await self._relay(stream, call, exchange, send)
                        else:
                            last = self._whole(call, exchange, await exchange.read_all())
                    if not is_stream:
                        await send(_start(call, relay.whole_headers(call, headers, last)))
                    else:
                        last = relay.last_bytes(call, last)
                        if stream.step is not Step.OVER:
                            last = await self._relay(stream, call, exchange, send, last)
                    await send({"type": "http.response.body", "body": last})
                    return
                except ReplicaError as error:
                    # The connection may carry data of another call, so it must not be reused.
                    exchange.cancel(error)
                    raise
                finally:
                    exchange.close()
        except ReplicaError as error:
            self.engines.failed(call, error)
            raise
        finally:
            call.client = None

    async def _open(self, call: Call, client: Disconnect) -> OpenCall:
        """Open a call. It waits while a budget holds it, or until calls in flight have settled what
        they reserve, here or through another gateway. Raises ApiError; ClientGone.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                placed = self.placement.place(call)
            except ApiError:
                found = await self._placed_later(call, client)
                if found is None:
                    raise
                placed = found
            try:
                return await self.lifecycle.open(call, placed)
            except BudgetExhausted as error:
                if not error.waits:
                    raise
            held = perf_counter()
            try:
                await client.wait(asyncio.sleep(pause_s))
            finally:
                call.held_s += perf_counter() - held
            pause_s = min(pause_s * 1.5, _MOST_PAUSE_S)

    async def _elsewhere(
        self, call: Call, opened: OpenCall, client: Disconnect, error: ConnectFailed
    ) -> OpenCall:
        """Open the call on another replica before the failed attempt is closed, so that the program
        always has an open call.
        """
        failed = (*call.failed, (call.replica, error.code))
        again = len(failed) < self.attempts
        if again:
            again = self.budget.take()
            self.count_retry("retried" if again else "refused")
        if not again and not await has_begun(self.lifecycle.table, call):
            raise error
        self.count_error(error.code)
        self.engines.failed(call, error)
        opened.supersede(self.next_call())
        call.failed = failed[-self.attempts :]
        avoid = frozenset([name for name, _ in failed])
        try:
            if not again:
                raise errors.replica_failed(error)
            placed = self.placement.place(call, avoid)
        except ApiError:
            found = await self._placed_later(call, client)
            if found is None:
                raise
            placed = found
        return await self.lifecycle.open(call, placed)

    async def _placed_later(self, call: Call, client: Disconnect) -> Placed | None:
        """Hold a call of a program that has begun until a replica takes it. Returns None for other
        calls, and for those that were held too long. Raises ClientGone.
        """
        if not await has_begun(self.lifecycle.table, call):
            return None
        while call.held_s < self.hold_s:
            held = perf_counter()
            try:
                await client.wait(asyncio.sleep(_LOOK_EVERY_S))
            finally:
                call.held_s += perf_counter() - held
            with contextlib.suppress(ApiError):
                return self.placement.place(call)
        return None

    def _head(self, call: Call) -> list[Tap]:
        """Record the arrival of the answer's first bytes, and return the taps of a stream."""
        call.first_byte_s = perf_counter() - call.begun
        notify(call.hooks.head, call)
        return taps(call.hooks.streams, call) if call.is_stream else []

    def _whole(self, call: Call, exchange: Exchange, body: bytes) -> bytes:
        """Take a non-streamed answer. Returns its body for the client."""
        relay.check_body(call.status, body)
        exchange.close()
        self._head(call)
        self.engines.answered(call)
        return relay.whole(call, body)

    async def _relay(
        self, stream: StreamRelay, call: Call, exchange: Exchange, send: Send, passed: bytes = b""
    ) -> bytes:
        """Send `passed`, and relay a stream until its call can be closed; once it is closed, until
        its end. Returns the bytes left to send.
        """
        closed, feed, read = stream.step, stream.feed, exchange.read
        try:
            while True:
                if passed:
                    await send({"type": "http.response.body", "body": passed, "more_body": True})
                data = await read(PIECE_BYTES)
                if len(data) > LIGHT_PIECE_BYTES:
                    await self.engines.turn(call, len(data))
                passed = feed(data, exchange.complete)
                if stream.step is None:
                    continue
                if stream.step is Step.END_SOON:
                    exchange.expect_end_within(_END_WITHIN_S)
                elif stream.step is not closed:
                    break
            if stream.step is Step.OVER:
                self.engines.answered(call)
        except ReplicaError as error:
            exchange.cancel(error)
            passed, error = stream.broken(error)
            if call.outcome is Outcome.OK and not call.disowned:
                self.engines.broke_off(call, error)
            else:
                self.count_error(error.code)
                self.engines.failed(call, error)
        if stream.step is Step.OVER:
            exchange.close()
        return passed


def _start(call: Call, headers: Headers) -> Message:
    return {"type": "http.response.start", "status": call.status, "headers": headers}
