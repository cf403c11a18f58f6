"""Prompt splitting over HTTP: a prefill computes what a next turn begins with, while its tools run.

The prefill is a call of its program like any other: placed, opened, counted, closed. It generates
one token, which no client sees; its blocks are tagged PARTIAL_PREFILL until the turn has come. The
handle is known to every gateway on one store; only the gateway that computes the prefill can stop
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from time import perf_counter, time
from typing import Any, Final

import orjson

from weft_gateway import errors
from weft_gateway.calls import relay
from weft_gateway.calls.call import PREFILL, Call, Caller
from weft_gateway.calls.engines import Engines
from weft_gateway.calls.lifecycle import Ask, Lifecycle, OpenCall
from weft_gateway.calls.observers import Observers
from weft_gateway.calls.placement import Placement
from weft_gateway.engine.advice import KvAdvisor
from weft_gateway.engine.errors import ReplicaError
from weft_gateway.engine.pool import Exchange
from weft_gateway.errors import ApiError
from weft_gateway.model import Outcome, Program, ProgramAttribute, ProgramKey
from weft_gateway.overlap.prefill import MARK, Prefill, PrefillError, PrefillState, announced
from weft_gateway.policies.fair_lru import FairLRU
from weft_gateway.programs.handles import Fields, HandleStore
from weft_gateway.programs.identity import Identity
from weft_gateway.programs.table import ProcessTable, TableUnavailable
from weft_gateway.telemetry.tasks import Spawner

log = logging.getLogger(__name__)

_HEADERS: Final = [(b"content-type", b"application/json")]
# Spans are cut to the prompt: one that reaches beyond any holds all of it.
_WHOLE_PROMPT_PARTIAL: Final = (1 << 24, 5)
_STATUS: Final = {
    "prefill_prefix_mismatch": 409,
}
# A turn that comes while its prefill runs waits so long for it; what it has computed by then stays.
_WAIT_S: Final = 0.25
# The same where another gateway computes it: so often it is asked whether it is done.
_LOOK_EVERY_S: Final = 0.05
_LAST_WAIT_S: Final = 5.0
# Tools that take longer are rare (Sutradhara 3.2), and KV is held meanwhile.
FORESEEN_TTL_S: Final = 60.0
# What decides how an engine writes out the messages, and so their tokens.
PROMPT_FIELDS: Final = (
    "messages",
    "tools",
    "chat_template",
    "chat_template_kwargs",
    "cache_salt",
)


class PrefillManager:
    """Starts prefills, gives them to their turns, and releases those that no turn has extended."""

    def __init__(
        self,
        handles: HandleStore,
        table: ProcessTable,
        placement: Placement,
        lifecycle: Lifecycle,
        engines: Engines,
        observers: Observers,
        advisor: KvAdvisor,
        ask: Ask,
        spawner: Spawner,
        next_call: Callable[[], str],
        *,
        most: int,
        most_of_tenant: int,
    ) -> None:
        """ask: what an engine says of a call that gave no report. spawner: runs work beside
        the calls. most: prefills that are open at
        once, of all tenants."""
        self._handles = handles
        self._table = table
        self._placement = placement
        self._lifecycle = lifecycle
        self._engines = engines
        self._observers = observers
        self._advisor = advisor
        self._ask = ask
        self._spawn = spawner.spawn
        self._next_call = next_call
        self._most_of_tenant = most_of_tenant
        self._running: dict[str, tuple[asyncio.Task[None], Exchange, Prefill]] = {}
        # Those that were begun here, until they are used or their time is over.
        self._own: dict[str, Prefill] = {}
        self._room = FairLRU[str](most)

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
        turn. ApiError; TableUnavailable."""
        call, prefix = self._call(caller, key, body, model)
        opened = await self._lifecycle.open(call, self._placement.place(call))
        now = time()
        try:
            prefill = Prefill.fresh(
                key, model, prefix, call.replica, now, ttl_s, by_itself=by_itself
            )
            if not await self._handles.begin(
                key, prefill.id, prefill.to_fields(), now, prefill.expires_s
            ):
                raise ApiError(
                    429,
                    "too_many_prefills",
                    f"At most {self._most_of_tenant} prefills may be open at once.",
                )
        except BaseException:
            call.outcome = Outcome.ABORTED
            async with opened:
                raise
        self._keep(prefill)
        exchange = self._engines.exchange(call)
        task = asyncio.get_running_loop().create_task(self._run(prefill, opened, exchange))
        self._running[prefill.id] = task, exchange, prefill
        task.add_done_callback(lambda _: self._running.pop(prefill.id, None))
        # So that the program's next calls are looked at, whichever gateway they come to.
        await self._table.set_attribute(key, ProgramAttribute(MARK, "1", prefill.expires_s), now)
        return prefill

    async def claim(self, prefill: Prefill, model: str, body: Mapping[str, Any]) -> None:
        """A turn has come for the prefill, which is stopped if it is still not done soon. ApiError
        409 for a turn with another beginning."""
        try:
            prefill.take(model, body, time())
        except PrefillError as error:
            raise refusal(error) from None
        taken = {"taken": repr(prefill.taken_s)}
        self._spawn(self._update(prefill, taken))
        running = self._running.get(prefill.id)
        if running is None:
            await self._wait_for_another_gateway(prefill)
            return
        task, exchange, _ = running
        await asyncio.wait((task,), timeout=_WAIT_S)
        if not task.done():
            exchange.cancel(ReplicaError("The turn has come."))
            await asyncio.wait((task,), timeout=_WAIT_S)

    async def _update(self, prefill: Prefill, fields: Fields) -> None:
        await self._handles.update(prefill.key, prefill.id, fields)

    async def _wait_for_another_gateway(self, prefill: Prefill) -> None:
        """Until it is done there, for as long as one waits for a prefill of one's own."""
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
        """Prefill what the program's next turn is thought to begin with. Never raises."""
        try:
            await self.submit(caller, key, body, model, FORESEEN_TTL_S, by_itself=True)
        except (ApiError, TableUnavailable) as error:
            log.debug("a next turn was not prefilled: %s", error)

    async def match(self, call: Call, program: Program) -> None:
        """A call has come as any other call does, of a program as it is known now. Where that has
        prefills, the one that the call begins with is its own; those that were foreseen otherwise
        are let go."""
        now, tenant = time(), program.key.tenant
        if not program.attribute(MARK, now):
            return
        call.matched = True
        for fields in await self._handles.of_program(program.key, now):
            prefill = self._live(_read(tenant, fields))
            if prefill is None:
                continue
            try:
                await self.claim(prefill, call.model, call.body)
                call.prefill = prefill
            except ApiError:
                if prefill.by_itself and not prefill.taken_s:
                    await self.discard(prefill)

    async def find(self, tenant: str, prefill_id: str) -> Prefill:
        """A tenant's handle, whichever gateway gave it. ApiError 404; TableUnavailable where only
        another gateway may know it."""
        fields = await self._handles.find(tenant, prefill_id, time())
        prefill = None if fields is None else self._live(_read(tenant, fields))
        if prefill is None:
            raise ApiError(
                404, "prefill_not_found", f"No prefill with id {prefill_id!r}, or it has expired."
            )
        return prefill

    def _keep(self, prefill: Prefill) -> None:
        """One more that was begun here. The tenant that has most of them gives way to others."""
        self._own[prefill.id] = prefill
        gone = self._room.put(prefill.key.tenant, prefill.id)
        if gone is not None:
            self._spawn(self.discard(self._own.pop(gone[1]), evicted=True))

    def _let_go(self, prefill: Prefill) -> bool:
        """Whether it was begun here, and was still kept."""
        kept = self._own.pop(prefill.id, None) is not None
        if kept:
            self._room.drop(prefill.key.tenant, prefill.id)
        return kept

    async def discard(self, prefill: Prefill, *, evicted: bool = False) -> None:
        """The tools failed, or took too long: no turn will extend this. evicted: another prefill
        has its place, in the store too."""
        self._let_go(prefill)
        there = await self._handles.drop(prefill.key, prefill.id)
        running = self._running.get(prefill.id)
        if running is not None:
            running[1].cancel(ReplicaError("The prefill was discarded."))
            await asyncio.wait((running[0],), timeout=_WAIT_S)
        if (there or evicted) and await self._was_last(prefill):
            await self._give_up(prefill)

    async def done(self, prefill: Prefill, key: ProgramKey) -> None:
        """The turn has ended, as a call of the program `key`. An answered one has used the prefill
        up, which engines see by themselves where it was the same program's; one that failed may be
        sent again."""
        if prefill.used:
            self._let_go(prefill)
            await self._handles.drop(prefill.key, prefill.id)
            if await self._was_last(prefill) and key != prefill.key:
                self._spawn(self._give_up(prefill))

    async def _was_last(self, prefill: Prefill) -> bool:
        """Whether a prefill that is no more was its program's only one. If not, giving it up would
        take what the others hold with it."""
        now = time()
        if await self._handles.of_program(prefill.key, now):
            return False
        # Of one that is begun in this very moment the mark goes, too: then its handle is the only
        # way to it.
        await self._table.set_attribute(prefill.key, ProgramAttribute(MARK, "", 0.0), now)
        return True

    async def _give_up(self, prefill: Prefill) -> None:
        await self._advisor.give_up(prefill.key, (prefill.replica,))

    def _live(self, prefill: Prefill | None) -> Prefill | None:
        """The same where it runs here: what it comes to is written into that."""
        if prefill is None or prefill.id not in self._running:
            return prefill
        return self._running[prefill.id][2]

    async def sweep(self) -> None:
        """Let go of what was begun here and has expired. What another gateway has used up is not
        there any more."""
        now = time()
        for prefill in [each for each in self._own.values() if each.expires_s <= now]:
            await self.discard(prefill)

    async def aclose(self) -> None:
        """The gateway ends: stop what runs, and wait until its calls are closed, which takes as
        long as engines take to tell what was used, and the table to answer."""
        running = list(self._running.values())
        for _, exchange, _ in running:
            exchange.cancel(ReplicaError("The gateway ends."))
        if running:
            await asyncio.wait([task for task, _, _ in running], timeout=_LAST_WAIT_S)

    def _call(
        self, caller: Caller, key: ProgramKey, body: Mapping[str, Any], model: str
    ) -> tuple[Call, tuple[bytes, ...]]:
        """The prefill's call, and the announced prefix. ApiError."""
        chat = {
            **{name: body[name] for name in PROMPT_FIELDS if body.get(name) is not None},
            "model": model,
            "max_tokens": 1,
            "stream": False,
            # The turn goes on after these messages: no answer begins here.
            "add_generation_prompt": False,
        }
        if chat.get("tools"):
            # Nor is one parsed for calls.
            chat["tool_choice"] = "none"
        hooks = self._observers.of(PREFILL)
        call = Call(self._next_call(), PREFILL, _HEADERS, b"", perf_counter(), hooks)
        try:
            prefix = announced(body)
            call.raw = orjson.dumps(chat)
        except PrefillError as error:
            raise refusal(error) from None
        except TypeError:  # Each message could be written by itself, but not all inside of a body.
            raise errors.too_deep() from None
        call.body, call.model, call.caller = chat, model, caller
        call.identity = Identity(key, "prefill", "", "prefill", ephemeral=False)
        call.target = PREFILL.path.encode()
        # A tag, no pin: a program has one pin, and it is the client's.
        call.tags = _WHOLE_PROMPT_PARTIAL
        return call, prefix

    async def _run(self, prefill: Prefill, opened: OpenCall, exchange: Exchange) -> None:
        """Compute it. In any case the call is closed, and the handle says what became of it."""
        async with opened as call:
            try:
                await self._engines.send(call, exchange)
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
                    call.report = await self._ask(call)
                    prefill.report = prefill.report or call.report
                there = await self._handles.update(prefill.key, prefill.id, prefill.outcome())
                if not there and self._let_go(prefill):
                    # Dropped through another gateway, which could not stop it.
                    await self._give_up(prefill)


def _read(tenant: str, fields: Fields) -> Prefill | None:
    """A handle, None for what another release has written and this one cannot read."""
    try:
        return Prefill.from_fields(tenant, fields)
    except (KeyError, ValueError, TypeError):
        return None


def refusal(error: PrefillError) -> ApiError:
    """The same as an answer."""
    return ApiError(_STATUS.get(error.code, 400), error.code, str(error))
