"""The hot path: one call from its first byte to its last. Plain ASGI, no framework, no model.

    read -> parse -> authenticate -> identify -> place -> open -> send -> relay -> close

Every open call is closed exactly once, whichever way this ends; `Ledger` sees to the writing.
"""

from __future__ import annotations

from time import perf_counter, time
from typing import Final

from engine_patches.wire import CALL_HEADER, CallContext
from gateway.api import errors, failures, reports
from gateway.api.errors import ApiError
from gateway.api.http import Departure, Receive, Scope, Send
from gateway.api.ledger import OpenCall
from gateway.api.relay import Relay
from gateway.api.request import Request, read_request
from gateway.api.services import Services
from gateway.engine.endpoints import Endpoint
from gateway.engine.errors import ClientGone, ConnectFailed, ReplicaError
from gateway.engine.headers import for_engine, sane_request_id
from gateway.engine.lower import CONTEXT_HEADER, TooDeep, lower, program_digest
from gateway.engine.pool import Exchange
from gateway.engine.registry import Replica
from gateway.model import Opening, Outcome, RouteRequest
from gateway.programs.table import TableUnavailable

_CALL_LINE: Final = f"{CALL_HEADER}: ".encode()
_CONTEXT_LINE: Final = f"{CONTEXT_HEADER}: ".encode()


class CallHandler:
    """Serves the endpoints that run the model."""

    def __init__(self, services: Services) -> None:
        self._s = services

    async def __call__(
        self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send, program: str | None
    ) -> None:
        """Serve one request. `program`: its program as the path named it, if it did."""
        begun = perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = sane_request_id(headers.get(b"x-request-id"))
        call = self._s.next_call()
        if request_id is None:
            request_id = b"req" + call.removeprefix("call").encode()
        try:
            request = await read_request(
                self._s, endpoint, scope, headers, receive, program, request_id, begun
            )
            departure = self._s.departures.expect(receive)
            try:
                await self._serve(request, call, departure, send)
            finally:
                self._s.departures.done(departure)
        except ClientGone:
            return
        except Exception as error:
            await failures.respond(self._s, scope, send, error, endpoint.errors, request_id)

    async def _serve(self, request: Request, call: str, departure: Departure, send: Send) -> None:
        """Place the call, send it, relay the answer; on another replica while none was reached."""
        avoid: frozenset[str] = frozenset()
        open_call: OpenCall | None = None
        try:
            while True:
                previous, open_call = open_call, await self._open(request, call, avoid)
                if previous is not None:
                    # In this order the program never seems to be without a call.
                    await self._s.ledger.close(previous, Outcome.ERROR, None)
                replica = self._s.registry[open_call.replica]
                exchange = Exchange(replica.upstream)
                try:
                    departure.stop_on_departure(exchange)
                    await self._send(request, open_call, replica, exchange)
                    relay = Relay(self._s, request, open_call, replica, exchange)
                    await relay.run(send)
                    return
                except ConnectFailed as error:
                    self._s.metrics.error(error.code)
                    self._s.registry.failed(replica.name, error)
                    avoid |= {replica.name}
                    call = self._s.next_call()
                finally:
                    exchange.close()
        except ReplicaError as error:
            self._s.registry.failed(replica.name, error)
            raise ApiError(error.status, error.code, str(error)) from None
        except TooDeep:
            raise errors.too_deep() from None
        except TableUnavailable:
            raise errors.table_unavailable(self._s.settings.retry_after_s) from None
        finally:
            # Nothing to do for a call that was answered: it is closed by now.
            if open_call is not None and not open_call.closed:
                if departure.gone:
                    self._aborted(open_call)
                else:
                    await self._s.ledger.close(open_call, Outcome.ERROR, None)

    async def _open(self, request: Request, call: str, avoid: frozenset[str]) -> OpenCall:
        s = self._s
        now = time()
        identity = request.identity
        # Records by position here: names would double what each costs.
        question = RouteRequest(
            request.model,
            s.estimator.estimate(request.model, len(request.raw)),
            s.table.peek(identity.key),
            s.registry.views(s.table.in_flight()),
            avoid,
            next(s.placed),
        )
        decision = s.router.route(question, now, s.rng)
        if not decision.replica:
            raise errors.no_replica(s.settings.retry_after_s)
        opening = Opening(
            identity.key,
            call,
            identity.thread,
            decision.replica,
            decision.eligible,
            decision.sticky,
            now,
            identity.ephemeral,
        )
        opened = await s.ledger.open(opening)
        return OpenCall(
            identity.key,
            call,
            request.endpoint.name,
            request.model,
            len(request.raw),
            opened.replica,
            opened.program,
            identity.final,
            opened.local,
        )

    async def _send(
        self, request: Request, call: OpenCall, replica: Replica, exchange: Exchange
    ) -> None:
        program = call.program
        context = CallContext(
            call.call,
            program_digest(call.key),
            program.service_s,
            program.waiting_s,
            program.arrival_s,
            program.critical_path_s,
        )
        body, carried = lower(
            request.raw, request.body, request.endpoint, replica.kind, context, request.caller.salt
        )
        lines = b"%bx-request-id: %b\r\n%b%b\r\n" % (
            for_engine(request.headers),
            request.request_id,
            _CALL_LINE,
            call.call.encode(),
        )
        if carried:
            lines += b"%b%b\r\n" % (_CONTEXT_LINE, carried)
        head = replica.request_head("POST", request.target, lines, len(body))
        self._s.metrics.overhead.observe(perf_counter() - request.begun)
        await exchange.start(head, body)

    def _aborted(self, call: OpenCall) -> None:
        """The client has gone, and the engine has been told. What the call used is asked for and
        written off the hot path."""
        s = self._s
        replica = s.registry[call.replica]
        s.ledger.close_later(
            call,
            Outcome.ABORTED,
            lambda: reports.ask(s.cold, replica, call.call, s.settings.engine_secret),
        )
