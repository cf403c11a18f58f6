"""The hot path: one call from its first byte to its last. Plain ASGI, no framework, no model.

    read -> parse -> authenticate -> identify -> place -> open -> send -> relay -> close

Every open call is closed exactly once, whichever way this ends; `Ledger` sees to the writing.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter, time
from typing import Final

from weft_engine.wire import CALL_HEADER

from weft_gateway.api import errors, failures, reports
from weft_gateway.api.context import context_of
from weft_gateway.api.errors import ApiError
from weft_gateway.api.http import Departure, Receive, Scope, Send
from weft_gateway.api.ledger import OpenCall
from weft_gateway.api.limits import Admitted
from weft_gateway.api.placing import choose_home, prompt_tokens, taught_bytes
from weft_gateway.api.prefills import PrefillDesk
from weft_gateway.api.relay import Relay
from weft_gateway.api.request import Request, join_lineage, read_request
from weft_gateway.api.services import Services
from weft_gateway.api.turns import LIGHT_BYTES
from weft_gateway.api.watch import remember
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.engine.errors import ClientGone, ConnectFailed, ReplicaError
from weft_gateway.engine.headers import for_engine, sane_request_id
from weft_gateway.engine.lower import CONTEXT_HEADER, ReplicaKind, TooDeep, lower
from weft_gateway.engine.pool import Exchange
from weft_gateway.engine.registry import Replica
from weft_gateway.model import Opening, Outcome, ProgramKey, RouteRequest
from weft_gateway.programs.identity import Identity, IdentityError, resolve
from weft_gateway.programs.lineage.rules import How, shown
from weft_gateway.programs.table import TableUnavailable
from weft_gateway.telemetry.receipts import Receipt

_CALL_FIELD: Final = CALL_HEADER.encode()
_CONTEXT_FIELD: Final = CONTEXT_HEADER.encode()


class CallHandler:
    """Serves the endpoints that run the model."""

    def __init__(self, services: Services, desk: PrefillDesk) -> None:
        self._s = services
        self._desk = desk

    async def __call__(
        self,
        endpoint: Endpoint,
        scope: Scope,
        receive: Receive,
        send: Send,
        program: str | None,
        prefill_id: str = "",
    ) -> None:
        """Serve one request. program: its program as the path named it, if it did. prefill_id: the
        handle of a prefill that it extends, whose program it then belongs to."""
        begun = perf_counter()
        request: Request | None = None
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = sane_request_id(headers.get(b"x-request-id"))
        call = self._s.next_call()
        if request_id is None:
            request_id = b"req" + call.removeprefix("call").encode()
        try:
            request = await read_request(
                self._s, endpoint, scope, headers, receive, program, request_id, begun
            )
            if self._s.limits is not None:
                request.admitted = await self._s.limits.admit(
                    request.caller.tenant,
                    prompt_tokens(self._s, request),
                )
            if prefill_id:
                await self._extend(request, prefill_id)
            elif request.identity.source == "none":
                await join_lineage(self._s, request)
            if request.prefill is None and endpoint.name == "chat":
                known = self._s.table.peek(request.identity.key)
                if known is not None and known.attributes:
                    await self._desk.meet(request, known)
            departure = self._s.departures.expect(receive)
            try:
                await self._serve(request, call, departure, send)
            finally:
                self._s.departures.done(departure)
        except ClientGone:
            return
        except Exception as error:
            if self._s.receipts.on and isinstance(error, ApiError):
                self._refused(endpoint, headers, program, request, request_id, call, begun, error)
            await failures.respond(self._s, scope, send, error, endpoint.errors, request_id)
        finally:
            if request is not None and request.admitted is not None:
                self._release(request.admitted)

    def _release(self, admitted: Admitted) -> None:
        if self._s.limits is not None:
            self._s.limits.release(admitted)

    def _refused(
        self,
        endpoint: Endpoint,
        headers: dict[bytes, bytes],
        program: str | None,
        request: Request | None,
        request_id: bytes,
        call: str,
        begun: float,
        error: ApiError,
    ) -> None:
        """The call's receipt says what the client is told; without one, it gets one."""
        receipt = request.receipt if request is not None else None
        if receipt is None:
            try:
                tenant = self._s.auth.caller(headers).tenant
            except ApiError:
                return  # Nobody could look at it.
            identity = (
                self._named(tenant, headers, program) if request is None else request.identity
            )
            key = ProgramKey(tenant, "") if identity is None else identity.key
            receipt = Receipt.refused(request_id.decode(), call, key, endpoint.name, time())
            receipt.begun = begun
            if identity is not None:
                receipt.thread, receipt.source = identity.thread, identity.source
            if request is not None:
                receipt.model = request.model
            self._s.receipts.add(receipt)
        receipt.fail(error.status, error.code, perf_counter())

    def _named(
        self, tenant: str, headers: dict[bytes, bytes], program: str | None
    ) -> Identity | None:
        """Whose call it is by its path and headers, where its body could not be taken."""
        try:
            identity = resolve(
                tenant=tenant,
                headers=headers.items(),
                body={},
                path_program=program,
                chains=self._s.chains,
                traceparent=self._s.settings.traceparent_programs,
            )
        except IdentityError:
            return None
        return None if identity.source == "none" else identity

    async def _extend(self, request: Request, prefill_id: str) -> None:
        """The request is the turn that a prefill was made for. ApiError."""
        try:
            prefill = await self._desk.find(request.caller.tenant, prefill_id)
        except TableUnavailable:
            # Another gateway may know the handle; the call is served without it.
            await join_lineage(self._s, request)
            return
        await self._desk.take(prefill, request.model, request.body)
        request.prefill = prefill
        if request.identity.source == "none":
            await join_lineage(self._s, request)
            asked = request.asked
            if asked is None or asked.verdict.how is How.NEW:
                # What it continues is not known; the prefill's program is.
                request.asked = None
                request.identity = Identity(
                    prefill.key, request.identity.thread, "", "prefill", ephemeral=False
                )

    async def _serve(self, request: Request, call: str, departure: Departure, send: Send) -> None:
        """Place the call, send it, relay the answer. Another replica gets it only if no connection
        to the one before could be made: then no byte of it was sent."""
        avoid: frozenset[str] = frozenset()
        failed: tuple[tuple[str, str], ...] = ()
        open_call: OpenCall | None = None
        try:
            while True:
                previous, open_call = open_call, await self._open(request, call, avoid)
                if previous is not None:
                    # In this order the program never seems to be without a call.
                    await self._s.ledger.close(previous, Outcome.ERROR, None)
                    if open_call.receipt is not None:
                        open_call.receipt.failed = failed
                if open_call.program.attributes and not request.met:
                    await self._meet(request, open_call)
                replica = self._s.registry[open_call.replica]
                exchange = Exchange(replica.upstream)
                try:
                    departure.stop_on_departure(exchange)
                    await self._send(request, open_call, replica, exchange)
                    relay = Relay(self._s, request, open_call, replica, exchange, self._desk)
                    await relay.run(send)
                    return
                except ConnectFailed as error:
                    if open_call.receipt is not None:
                        failed += ((replica.name, error.code),)
                    avoid |= {replica.name}
                    if len(avoid) >= self._s.settings.attempts_per_call:
                        raise
                    self._s.metrics.error(error.code)
                    self._s.registry.failed(replica.name, error, request.caller.tenant)
                    call = self._s.next_call()
                except ReplicaError as error:
                    # The connection may carry what belongs to another call: it is not used again.
                    exchange.cancel(error)
                    raise
                finally:
                    exchange.close()
        except ReplicaError as error:
            self._s.registry.failed(replica.name, error, request.caller.tenant)
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
            if request.asked is not None:
                await remember(self._s, request, None, False)
            if request.prefill is not None:
                await self._desk.done(request.prefill, request.identity.key)

    async def _meet(self, request: Request, call: OpenCall) -> None:
        """The program has been told something that this gateway did not know: it may have prefills
        of another one."""
        if request.prefill is None and request.endpoint.name == "chat":
            await self._desk.meet(request, call.program)
            call.prefill = request.prefill

    async def _open(self, request: Request, call: str, avoid: frozenset[str]) -> OpenCall:
        s = self._s
        now = time()
        identity = request.identity
        # Records by position here: names would double what each costs.
        question = RouteRequest(
            request.model,
            prompt_tokens(s, request),
            s.table.peek(identity.key),
            s.registry.views(s.table.in_flight()),
            avoid,
            next(s.placed),
            request.holder,
        )
        decision = s.router.route(question, now, s.rng)
        if not decision.replica:
            question = replace(question, replicas=s.registry.last_resort(s.table.in_flight()))
            decision = s.router.route(question, now, s.rng)
        if not decision.replica:
            raise self._nowhere(request)
        sticky, reason, beginning = decision.sticky, "", None
        if request.prefill is not None and request.prefill.replica in decision.eligible:
            # Its KV is there, wherever the program's home is.
            proposed, sticky, reason = request.prefill.replica, False, "its prefill is there"
        else:
            if decision.new_home and request.endpoint.spoken:
                size, salt = len(request.raw), request.caller.salt
                decision, beginning = choose_home(
                    s, question, decision, request.body, size, salt, now
                )
            proposed = decision.replica
        opening = Opening(
            identity.key,
            call,
            identity.thread,
            proposed,
            decision.eligible,
            sticky,
            now,
            identity.ephemeral,
            identity.parent,
        )
        opened = await s.ledger.open(opening)
        if beginning is not None:
            s.registry.beginnings.sent(opened.replica, beginning)
        receipt = None
        if s.receipts.on:
            receipt = Receipt(
                request.request_id.decode(),
                call,
                identity.key,
                identity.thread,
                identity.parent,
                identity.source,
                request.endpoint.name,
                request.model,
                now,
                decision,
                opened.replica,
                question.prompt_tokens,
                None,
                reason,
            )
            if request.asked is not None:
                verdict = request.asked.verdict
                receipt.lineage = verdict.owner, verdict.thread, verdict.parent
                if verdict.joined:
                    receipt.joined = tuple(
                        [shown(*joined, verdict.program) for joined in verdict.joined]
                    )
            receipt.begun = request.begun
            request.receipt = receipt
            s.receipts.add(receipt)
        return OpenCall(
            identity.key,
            call,
            request.endpoint.name,
            request.model,
            taught_bytes(request),
            opened.replica,
            opened.program,
            identity.final,
            opened.local,
            None,
            receipt,
            request.prefill,
            None,
            request.admitted,
        )

    def _nowhere(self, request: Request) -> ApiError:
        """No replica can take the call. An answer that it continues is lost with its replica,
        unless that one may only be late."""
        holder = self._s.registry.get(request.holder)
        if request.holder and (holder is None or holder.circuit.alive or holder.circuit.dead):
            return errors.previous_response_not_found(request.body["previous_response_id"], 404)
        return errors.no_replica(self._s.settings.retry_after_s)

    async def _send(
        self, request: Request, call: OpenCall, replica: Replica, exchange: Exchange
    ) -> None:
        if len(request.raw) > LIGHT_BYTES:
            await self._s.turns.take(request.caller.tenant, len(request.raw))
        context = context_of(self._s, request, call, replica)
        body, carried = lower(
            request.raw, request.body, request.endpoint, replica.kind, context, request.caller.salt
        )
        name = call.call.encode()
        fields = for_engine(request.headers)
        # The call's id, not the client's: two requests of one engine never have the same.
        fields.append((b"x-request-id", name))
        # Only an engine that is told of the call in its body reports on it.
        if replica.kind is ReplicaKind.WEFT:
            fields.append((_CALL_FIELD, name))
        if carried:
            fields.append((_CONTEXT_FIELD, carried))
        head = replica.request_head("POST", request.target, fields, len(body))
        overhead_s = perf_counter() - request.begun
        self._s.metrics.overhead.observe(overhead_s)
        if call.receipt is not None:
            call.receipt.overhead_s = overhead_s
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
