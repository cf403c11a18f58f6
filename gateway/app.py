"""The composition root: the one file that names concrete classes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from importlib.metadata import version
from time import time

import httpx
from fastapi_offline import FastAPIOffline

from gateway.api import admin, failures, hints, models, sessions, status, stories
from gateway.api.auth import Authenticator
from gateway.api.dispatch import Dispatcher
from gateway.api.ledger import Ledger
from gateway.api.openapi import describe_hot_routes
from gateway.api.prefills import PrefillDesk
from gateway.api.services import Services
from gateway.config import Settings
from gateway.engine.advice import KvAdvisor
from gateway.engine.estimate import PromptEstimator
from gateway.engine.farewells import Farewells
from gateway.engine.health import HealthLoop
from gateway.engine.pool import Timeouts, watch
from gateway.engine.registry import Registry
from gateway.engine.tokens import TokenCounter
from gateway.policies.retain.idle import IdlePolicy
from gateway.policies.route import registry as routers
from gateway.programs.handles import HandleStore, MemoryHandles
from gateway.programs.identity import ChainRoots
from gateway.programs.idle import IdleTimes
from gateway.programs.lineage.memory import MemoryLineage
from gateway.programs.lineage.store import LineageStore
from gateway.programs.lineage.tracker import Lineage
from gateway.programs.memory import MemoryTable
from gateway.programs.table import ProcessTable, TableUnavailable
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.receipts import Receipts

log = logging.getLogger(__name__)

_REAP_EVERY_S = 30.0
_SWEEP_EVERY_S = 1.0
_CANCEL_AGAIN_S = 0.5
# Signs that the calls of this gateway are alive, for each lease.
_SIGNS = 4


def make_table(settings: Settings) -> ProcessTable:
    """The process table that the settings ask for."""
    if settings.redis_url:
        # Its client is not loaded, nor needed, where the table is in memory.
        from gateway.programs.redis import RedisTable
        from gateway.programs.resilient import ResilientTable

        return ResilientTable(
            RedisTable(
                settings.redis_url,
                settings.redis_prefix,
                settings.call_lease_s,
                settings.redis_timeout_s,
                settings.max_programs_per_tenant,
            )
        )
    return MemoryTable(per_tenant=settings.max_programs_per_tenant)


def make_chains(settings: Settings, table: ProcessTable) -> ChainRoots:
    """What is known of stored answers, where the settings want the process table."""
    if settings.redis_url:
        from gateway.programs.redis_chains import RedisChains
        from gateway.programs.redis_store import RedisStore

        store = RedisStore(settings.redis_url, settings.redis_prefix, settings.redis_timeout_s)
        return RedisChains(store, lambda: table.local, settings.answer_keep_s)
    return ChainRoots(keep_s=settings.answer_keep_s)


def make_handles(settings: Settings, table: ProcessTable) -> HandleStore:
    """The handles of prefills, where the settings want the process table."""
    if settings.redis_url:
        from gateway.programs.redis_handles import RedisHandles
        from gateway.programs.redis_link import RedisLink

        link = RedisLink(settings.redis_url, settings.redis_prefix, settings.redis_timeout_s)
        return RedisHandles(link, lambda: table.local)
    return MemoryHandles()


def make_lineage_store(settings: Settings) -> LineageStore:
    """What remembers whose the messages of calls without a key are."""
    if settings.redis_url:
        from gateway.programs.lineage.redis import RedisLineage

        return RedisLineage(settings.redis_url, settings.redis_prefix)
    return MemoryLineage()


def make_services(settings: Settings, table: ProcessTable | None = None) -> Services:
    """The gateway's parts, wired. `table`: instead of the one that the settings ask for."""
    table = table if table is not None else make_table(settings)
    timeouts = _timeouts(settings)
    metrics = Metrics()
    estimator = PromptEstimator()
    tokens = TokenCounter()
    registry = Registry(
        settings.replicas,
        timeouts,
        settings.replica_api_key,
        settings.replica_cache_tokens,
        settings.max_answer_bytes,
    )
    cold = httpx.AsyncClient(timeout=settings.connect_timeout_s, trust_env=False)
    advisor = KvAdvisor(registry, cold, settings.engine_secret)
    return Services(
        settings=settings,
        auth=Authenticator(settings.api_keys, settings.admin_key),
        table=table,
        router=routers.build(settings.balancer, settings.locality_threshold_tokens),
        registry=registry,
        ledger=Ledger(table, metrics, estimator, tokens, advisor),
        metrics=metrics,
        chains=make_chains(settings, table),
        estimator=estimator,
        idle=IdleTimes(
            IdlePolicy(
                min(settings.program_idle_min_s, settings.program_idle_s), settings.program_idle_s
            )
        ),
        cold=cold,
        tokens=tokens,
        receipts=Receipts(settings.receipts, settings.receipts_age_s),
        advisor=advisor,
        prefills=make_handles(settings, table),
        lineage=Lineage(make_lineage_store(settings)) if settings.lineage else None,
    )


def _timeouts(settings: Settings) -> Timeouts:
    return Timeouts(
        settings.connect_timeout_s,
        settings.first_byte_timeout_s,
        settings.idle_timeout_s,
        settings.lost_after_s,
    )


def create_app(settings: Settings, table: ProcessTable | None = None) -> Dispatcher:
    """The gateway as an ASGI application. Its lifespan starts and ends the background work."""
    services = make_services(settings, table)
    desk = PrefillDesk(services)
    # FastAPI with the scripts of its page at /docs on board, instead of another host's.
    cold = FastAPIOffline(
        docs_url="/docs",
        redoc_url=None,
        swagger_ui_parameters={"validatorUrl": None},
        title="Weft",
        version=version("weft"),
        description="An OpenAI-compatible, stateful serving gateway for agent programs.",
        lifespan=lambda _: _lifespan(services, desk),
        redirect_slashes=False,
    )
    for module in (status, models, sessions, admin, stories):
        cold.include_router(module.router(services))
    cold.include_router(hints.router(services, desk))
    failures.install(cold, services)
    describe_hot_routes(cold)
    return Dispatcher(services, cold, desk)


@contextlib.asynccontextmanager
async def _lifespan(services: Services, desk: PrefillDesk) -> AsyncIterator[None]:
    settings = services.settings
    health = HealthLoop(
        services.registry,
        services.cold,
        settings.health_interval_s,
        settings.engine_secret,
        settings.connect_timeout_s,
    )
    # Before the first call is taken, so that it finds replicas that are known to be up.
    await health.check_all()
    timeouts = _timeouts(settings)
    table = services.table
    farewells = Farewells(services.advisor, lambda key: table.peek(key) is not None)
    upstreams = [replica.upstream for replica in services.registry]
    background = [
        asyncio.create_task(work)
        for work in (
            health.run(),
            watch(upstreams, timeouts),
            services.departures.run(),
            _reap(services, farewells),
            farewells.run(),
            _sweep(desk),
        )
    ]
    try:
        yield
    finally:
        await _cancel(background)
        await desk.aclose()
        services.registry.close()
        await services.ledger.settle(timeout_s=5.0)
        await services.cold.aclose()
        await services.table.aclose()
        if services.lineage is not None:
            await services.lineage.aclose()
        await services.chains.aclose()
        await services.prefills.aclose()


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """End tasks. A client that bounds its waiting by cancelling itself may take a cancellation that
    comes at that moment for its own, so they are asked again until they have ended."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN_S)


async def _sweep(desk: PrefillDesk) -> None:
    """Let go of prefills whose time is over."""
    while True:
        await asyncio.sleep(_SWEEP_EVERY_S)
        await desk.sweep()


async def _reap(services: Services, farewells: Farewells) -> None:
    """End the programs that nobody has called for long, and calls that nobody has any more."""
    idle_s = services.settings.program_idle_s
    shortest_s = min(idle_s, services.settings.program_idle_min_s)
    every_s = min(_REAP_EVERY_S, shortest_s / 2, services.settings.call_lease_s / _SIGNS)
    while True:
        try:
            gone = await services.table.expire(time(), idle_s)
            services.idle.ended([program.key for program in gone], time())
            farewells.add(gone)
            await services.chains.flush()
            await services.prefills.flush(time())
        except TableUnavailable as error:
            log.warning("the process table cannot be reached: %s", error)
        await asyncio.sleep(every_s)
