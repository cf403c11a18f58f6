"""Prompt splitting over HTTP: a prefill computes the beginning of a next turn while its tools run.

A prefill is a call of its program like any other: placed, opened, counted, closed. It generates one
token, which no client sees. Its blocks are tagged PARTIAL_PREFILL until the turn arrives. Every
gateway on one store knows the handle; only the gateway that computes the prefill can stop it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import Any, Final

import msgspec
import orjson

from weft_gateway import errors
from weft_gateway.calls import relay
from weft_gateway.calls.body_bytes import BodyBytes
from weft_gateway.calls.call import PREFILL, Call, Caller
from weft_gateway.calls.engines import Engines
from weft_gateway.calls.lifecycle import Lifecycle, OpenCall
from weft_gateway.calls.observers import Observers, notify
from weft_gateway.calls.placement import Placement
from weft_gateway.engine.advice import KvAdvisor
from weft_gateway.engine.errors import ReplicaError
from weft_gateway.engine.pool import Exchange
from weft_gateway.errors import ApiError
from weft_gateway.model import Outcome, Program, ProgramKey
from weft_gateway.overlap.prefill import Prefill, PrefillError, PrefillState, announced
from weft_gateway.policies.fair_lru import FairLRU
from weft_gateway.programs.handles import Fields, HandleStore, has_handles, new_id
from weft_gateway.programs.identity import Identity
from weft_gateway.programs.table import TableUnavailable
from weft_gateway.telemetry.tasks import Spawner

log = logging.getLogger(__name__)

_HEADERS: Final = [(b"content-type", b"application/json")]
# Spans are cut at the prompt's end, so a longer one covers the whole prompt.
_WHOLE_PROMPT_PARTIAL: Final = (1 << 24, 5)
# Time that a turn waits for its running prefill, seconds. The blocks computed by then stay cached.
_WAIT_S: Final = 0.25
# Polling interval if another gateway computes the prefill, seconds.
_LOOK_EVERY_S: Final = 0.05
_LAST_WAIT_S: Final = 5.0
# Tools that take longer are rare (Sutradhara 3.2), and the KV is held meanwhile.
AUTO_PREFILL_TTL_S: Final = 60.0
# The fields that determine the rendering of the messages, and so their tokens.
PROMPT_FIELDS: Final = (
    "messages",
    "tools",
    "chat_template",
    "chat_template_kwargs",
    "cache_salt",
)


@dataclass(slots=True, eq=False)
class PrefillManager:
    """Starts prefills, assigns them to their turns, and releases unused ones. spawner: runs work
    beside the calls. most: maximum open prefills of all tenants.
    """

    handles: HandleStore
    placement: Placement
    lifecycle: Lifecycle
    engines: Engines
    observers: Observers
    advisor: KvAdvisor
    spawner: Spawner
    next_call: Callable[[], str]
    bodies: BodyBytes
    most: int
    most_of_tenant: int
    _running: dict[str, tuple[asyncio.Task[None], Exchange, Prefill]] = field(
        default_factory=dict, init=False
    )
    # Prefills begun by this gateway, until they are used or expire.
    _own: dict[str, Prefill] = field(default_factory=dict, init=False)
    _room: FairLRU[str] = field(init=False)

    def __post_init__(self) -> None:
        self._room = FairLRU(self.most)

    def __len__(self) -> int:
        """Prefills begun by this gateway that are neither used nor expired."""
        return len(self._own)

    async def submit(
        self,
        caller: Caller,
        key: ProgramKey,
        body: Mapping[str, Any],
        model: str,
        ttl_s: float,
        *,
        by_itself: bool = False,
    ) -> Prefill:
        """Announce the prefix in `body`, whose model is known. by_itself: the gateway predicted the
        turn. Raises ApiError, PrefillError, TableUnavailable.
        """
        call, prefix = self._call(caller, key, body, model)
        opened = await self.lifecycle.open(call, self.placement.place(call))
        now = time()
        handle = new_id(key.program)
        prefill = Prefill.fresh(
            handle, key, model, prefix, call.replica, now, ttl_s, by_itself=by_itself
        )
        try:
            self._keep(prefill)
            await self.handles.begin(key, handle, prefill.to_fields(), now, prefill.expires_s)
        except BaseException:
            self._let_go(prefill)
            call.outcome = Outcome.ABORTED
            async with opened:
                raise
        exchange = self.engines.exchange(call)
        task = asyncio.get_running_loop().create_task(self._run(prefill, opened, exchange))
        self._running[prefill.id] = task, exchange, prefill
        task.add_done_callback(lambda _: self._running.pop(prefill.id, None))
        return prefill

    async def claim(self, prefill: Prefill, model: str, body: Mapping[str, Any]) -> None:
        """Assign a turn to the prefill, and stop the prefill if it does not finish soon. Raises
        PrefillError for a turn with another beginning.
        """
        prefill.take(model, body, time())
        taken = {"taken_s": prefill.taken_s}
        self.spawner.spawn(self.handles.update(prefill.key, prefill.id, taken))
        running = self._running.get(prefill.id)
        if running is None:
            await self._wait_for_another_gateway(prefill)
            return
        task, exchange, _ = running
        await asyncio.wait((task,), timeout=_WAIT_S)
        if not task.done():
            exchange.cancel(ReplicaError("The turn has arrived."))
            await asyncio.wait((task,), timeout=_WAIT_S)

    async def _wait_for_another_gateway(self, prefill: Prefill) -> None:
        """Wait until the other gateway is done, at most as long as for a local prefill."""
        left = round(_WAIT_S / _LOOK_EVERY_S)
        while prefill.state is PrefillState.RUNNING and left:
            left -= 1
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                now = await self.find(prefill.key.tenant, prefill.id)
            except (ApiError, TableUnavailable):
                return
            prefill.state, prefill.report = now.state, now.report

    async def auto_prefill(
        self, caller: Caller, key: ProgramKey, body: Mapping[str, Any], model: str
    ) -> None:
        """Prefill the predicted beginning of the program's next turn. Never raises."""
        try:
            await self.submit(caller, key, body, model, AUTO_PREFILL_TTL_S, by_itself=True)
        except (ApiError, PrefillError, TableUnavailable) as error:
            log.debug("the next turn was not prefilled: %s", error)

    async def match(self, call: Call, program: Program) -> None:
        """Match an ordinary call with the prefills of its program. The call claims the prefills
        that it begins with. Predicted prefills that do not match are discarded.
        """
        now = time()
        if not has_handles(program, now):
            return
        call.matched = True
        for fields in await self.handles.of_program(program.key, now):
            prefill = self._live(_read(fields))
            if prefill is None:
                continue
            try:
                call.read_whole()
                await self.claim(prefill, call.model, call.body)
                call.prefill = prefill
            except PrefillError:
                if prefill.by_itself and not prefill.taken_s:
                    await self.discard(prefill)

    async def find(self, tenant: str, prefill_id: str) -> Prefill:
        """Return a tenant's handle, from any gateway. Raises ApiError 404; TableUnavailable if only
        another gateway may know it.
        """
        fields = await self.handles.find(tenant, prefill_id, time())
        prefill = None if fields is None else self._live(_read(fields))
        if prefill is None:
            raise ApiError(
                404, "prefill_not_found", f"No prefill with id {prefill_id!r}, or it has expired."
            )
        return prefill

    def _keep(self, prefill: Prefill) -> None:
        """Add a prefill begun by this gateway. Over the limit of all tenants, the tenant with most
        prefills loses its oldest. Raises ApiError 429 if the tenant is at its own limit.
        """
        if self._room.count(prefill.key.tenant) >= self.most_of_tenant:
            raise ApiError(
                429,
                "too_many_prefills",
                f"At most {self.most_of_tenant} prefills may be open at once.",
            )
        self._own[prefill.id] = prefill
        for _, gone in self._room.put(prefill.key.tenant, prefill.id):
            self.spawner.spawn(self.discard(self._own.pop(gone), evicted=True))

    def _let_go(self, prefill: Prefill) -> bool:
        """Stop tracking a prefill. Returns whether it was tracked by this gateway."""
        kept = self._own.pop(prefill.id, None) is not None
        if kept:
            self._room.drop(prefill.key.tenant, prefill.id)
        return kept

    async def discard(self, prefill: Prefill, *, evicted: bool = False) -> None:
        """Discard a prefill that no turn will extend, because its tools failed or took too long.
        evicted: another prefill has taken its place, in the store too.
        """
        self._let_go(prefill)
        there = await self.handles.drop(prefill.key, prefill.id)
        running = self._running.get(prefill.id)
        if running is not None:
            running[1].cancel(ReplicaError("The prefill was discarded."))
            await asyncio.wait((running[0],), timeout=_WAIT_S)
        if (there or evicted) and await self._was_last(prefill):
            await self._give_up(prefill)

    async def done(self, prefill: Prefill, key: ProgramKey) -> None:
        """The turn has ended, as a call of the program `key`. An answered turn has used up the
        prefill; engines detect this if the turn is of the same program. A failed turn may be sent
        again.
        """
        if prefill.used:
            self._let_go(prefill)
            await self.handles.drop(prefill.key, prefill.id)
            if await self._was_last(prefill) and key != prefill.key:
                self.spawner.spawn(self._give_up(prefill))

    async def _was_last(self, prefill: Prefill) -> bool:
        """Whether a removed prefill was its program's only one. Otherwise, giving it up would also
        release the blocks of the others.
        """
        return not await self.handles.of_program(prefill.key, time())

    async def _give_up(self, prefill: Prefill) -> None:
        await self.advisor.advise(prefill.key, (prefill.replica,), "give_up")

    def _live(self, prefill: Prefill | None) -> Prefill | None:
        """Return the object of a prefill that runs here, because its outcome is written there."""
        if prefill is None or prefill.id not in self._running:
            return prefill
        return self._running[prefill.id][2]

    async def sweep(self) -> None:
        """Discard expired prefills begun by this gateway. Those that another gateway has used are
        already removed from the store.
        """
        now = time()
        for prefill in [each for each in self._own.values() if each.expires_s <= now]:
            await self.discard(prefill)

    async def aclose(self) -> None:
        """Stop running prefills at shutdown, and wait until their calls are closed."""
        running = list(self._running.values())
        for _, exchange, _ in running:
            exchange.cancel(ReplicaError("The gateway is shutting down."))
        if running:
            await asyncio.wait([task for task, _, _ in running], timeout=_LAST_WAIT_S)

    def _call(
        self, caller: Caller, key: ProgramKey, body: Mapping[str, Any], model: str
    ) -> tuple[Call, tuple[bytes, ...]]:
        """Return the prefill's call, and the announced prefix. Raises ApiError, PrefillError."""
        chat = {
            **{name: body[name] for name in PROMPT_FIELDS if body.get(name) is not None},
            "model": model,
            "max_tokens": 1,
            "stream": False,
            # The turn continues after these messages, so no answer begins here.
            "add_generation_prompt": False,
        }
        if chat.get("tools"):
            # The answer must not be parsed for tool calls.
            chat["tool_choice"] = "none"
        hooks = self.observers.of(PREFILL)
        call = Call(self.next_call(), PREFILL, _HEADERS, b"", perf_counter(), hooks)
        try:
            prefix = announced(body)
            call.raw = orjson.dumps(chat)
            call.size = len(call.raw)
            call.held = self.bodies.hold(caller.tenant)
            call.held.take(call.size)
        except TypeError:  # Each message is serializable, but the whole body is not.
            raise errors.of("too_deeply_nested") from None
        call.body, call.model, call.caller = chat, model, caller
        call.identity = Identity(key, "prefill", "", "prefill", ephemeral=False)
        call.target = PREFILL.path.encode()
        # A tag instead of a pin: a program has only one pin, which belongs to the client.
        call.tags = _WHOLE_PROMPT_PARTIAL
        return call, prefix

    async def _run(self, prefill: Prefill, opened: OpenCall, exchange: Exchange) -> None:
        """Compute the prefill. In all cases the call is closed, and the handle records
        the outcome.
        """
        async with opened as call:
            try:
                notify(call.hooks.opened, call)
                await self.engines.send(call, exchange)
                answer = await exchange.read_all()
                relay.start(call, exchange.status, exchange.headers)
                if call.status == 200:
                    call.outcome = Outcome.OK
                    prefill.state, prefill.report = PrefillState.DONE, call.report
                else:
                    prefill.state = PrefillState.FAILED
                    prefill.detail = answer[:300].decode("utf-8", "replace")
            except ReplicaError as error:
                exchange.cancel(error)
                call.outcome = Outcome.ABORTED if prefill.taken_s else Outcome.ERROR
                prefill.state, prefill.detail = PrefillState.FAILED, str(error)
            finally:
                exchange.close()
                if call.report is None:
                    call.report = await self.engines.ask_report(call)
                    prefill.report = prefill.report or call.report
                there = await self.handles.update(prefill.key, prefill.id, prefill.outcome())
                if not there and self._let_go(prefill):
                    # Dropped through another gateway, which could not stop it.
                    await self._give_up(prefill)


def _read(fields: Fields) -> Prefill | None:
    """Parse a handle; None for one of another release that this one cannot read."""
    try:
        return Prefill.from_fields(fields)
    except msgspec.ValidationError:
        return None
