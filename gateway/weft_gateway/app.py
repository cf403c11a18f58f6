"""The composition root: the one file that names concrete classes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from importlib.metadata import version
from time import time
from typing import TYPE_CHECKING

import httpx
from fastapi_offline import FastAPIOffline

from weft_gateway import tenants as tenants_file
from weft_gateway.api import admin, failures, hints, models, sessions, status, stories
from weft_gateway.api.auth import Authenticator
from weft_gateway.api.background import BackgroundCalls
from weft_gateway.api.dispatch import Dispatcher
from weft_gateway.api.ledger import Ledger
from weft_gateway.api.limits import TenantLimits
from weft_gateway.api.openapi import describe_hot_routes
from weft_gateway.api.prefills import PrefillDesk
from weft_gateway.api.services import Services
from weft_gateway.config import Settings
from weft_gateway.engine.advice import KvAdvisor
from weft_gateway.engine.estimate import PromptEstimator
from weft_gateway.engine.eviction_notifier import EvictionNotifier
from weft_gateway.engine.health import HealthLoop
from weft_gateway.engine.pool import Timeouts, watch
from weft_gateway.engine.registry import Registry
from weft_gateway.engine.tokens import TokenCounter
from weft_gateway.model.limits import TenantRules
from weft_gateway.policies.route import registry as routers
from weft_gateway.programs.handles import HandleStore, MemoryHandles
from weft_gateway.programs.identity import ResponseStore
from weft_gateway.programs.limits import Limiter, MemoryLimiter
from weft_gateway.programs.lineage.memory import MemoryLineage
from weft_gateway.programs.lineage.store import LineageStore
from weft_gateway.programs.lineage.tracker import Lineage
from weft_gateway.programs.memory import MemoryTable
from weft_gateway.programs.table import ProcessTable, TableUnavailable
from weft_gateway.telemetry.listeners import Listeners
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.telemetry.receipts import Receipts
from weft_gateway.telemetry.tasks import Supervisor, Work
from weft_gateway.tenants import Tenants

if TYPE_CHECKING:
    from weft_gateway.programs.redis_link import RedisLink

log = logging.getLogger(__name__)

_REAP_EVERY_S = 30.0
_SWEEP_EVERY_S = 1.0
# Signs that the calls of this gateway are alive, for each lease.
_SIGNS = 4


def make_table(settings: Settings) -> ProcessTable:
    """The process table that the settings ask for."""
    if settings.redis_url:
        # Its client is not loaded, nor needed, where the table is in memory.
        from weft_gateway.programs.redis import RedisTable
        from weft_gateway.programs.resilient import ResilientTable

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


def make_chains(settings: Settings, link: RedisLink | None) -> ResponseStore:
    """What is known of stored answers. link: the process table's Redis client, if it has one."""
    if link is not None:
        from weft_gateway.programs.redis_response_store import RedisResponseStore

        return RedisResponseStore(link, settings.answer_keep_s)
    return ResponseStore(keep_s=settings.answer_keep_s)


def make_handles(settings: Settings, link: RedisLink | None) -> HandleStore:
    """The handles of prefills. link: as for `make_chains`."""
    if link is not None:
        from weft_gateway.programs.redis_handles import SHARED_TIMES, RedisHandles

        return RedisHandles(
            link,
            settings.prefills_per_tenant,
            SHARED_TIMES * settings.prefills,
            settings.prefills,
        )
    return MemoryHandles(settings.prefills_per_tenant, settings.prefills)


def make_tenants(settings: Settings) -> Tenants:
    """The rules of all tenants. Raises TenantsError if the file has gone bad since the start."""
    default = TenantRules(
        1.0, settings.requests_per_minute, settings.tokens_per_minute, settings.calls_in_flight
    )
    return tenants_file.load(settings.tenants_file, default)


def make_limiter(link: RedisLink | None) -> Limiter:
    """The limits per tenant. link: as for `make_chains`."""
    if link is not None:
        from weft_gateway.programs.redis_limits import RedisLimiter

        return RedisLimiter(link)
    return MemoryLimiter()


def make_lineage_store(link: RedisLink | None) -> LineageStore:
    """Fingerprints of the messages of calls without a key. link: as for `make_chains`."""
    if link is not None:
        from weft_gateway.programs.lineage.redis import RedisLineage

        return RedisLineage(link)
    return MemoryLineage()


def make_services(settings: Settings, table: ProcessTable | None = None) -> Services:
    """The gateway's parts, wired. `table`: instead of the one that the settings ask for."""
    table = table if table is not None else make_table(settings)
    link: RedisLink | None = getattr(table, "link", None)
    timeouts = _timeouts(settings)
    metrics = Metrics()
    estimator = PromptEstimator()
    tokens = TokenCounter()
    registry = Registry(
        settings.replica_urls,
        timeouts,
        settings.replica_api_key,
        settings.replica_cache_tokens,
        settings.max_answer_bytes,
    )
    cold = httpx.AsyncClient(timeout=settings.connect_timeout_s, trust_env=False)
    advisor = KvAdvisor(registry, cold, settings.engine_secret)
    tenants = make_tenants(settings)
    limiter = make_limiter(link) if tenants.limited else None
    limits = None if limiter is None else TenantLimits(tenants, limiter)
    return Services(
        settings=settings,
        auth=Authenticator(settings.api_keys, settings.admin_key),
        table=table,
        router=routers.build(settings.balancer, settings.locality_threshold_tokens),
        registry=registry,
        ledger=Ledger(table, metrics, estimator, tokens, advisor, limits),
        metrics=metrics,
        tasks=Supervisor(metrics.task_failures),
        chains=make_chains(settings, link),
        estimator=estimator,
        cold=cold,
        tokens=tokens,
        receipts=Receipts(settings.receipts, settings.receipts_age_s),
        advisor=advisor,
        prefills=make_handles(settings, link),
        listeners=Listeners(
            settings.listeners_per_session, settings.listeners_per_tenant, settings.listeners
        ),
        lineage=Lineage(make_lineage_store(link)) if settings.lineage else None,
        tenants=tenants,
        limiter=limiter,
        limits=limits,
        background=(
            None if limits is None else BackgroundCalls(limits, cold, settings.first_byte_timeout_s)
        ),
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
    notifier = EvictionNotifier(services.advisor, lambda key: table.peek(key) is not None)
    upstreams = [replica.upstream for replica in services.registry]
    background: dict[str, Work] = {
        "health": health.run,
        "deadlines": lambda: watch(upstreams, timeouts),
        "departures": services.departures.run,
        "reap": lambda: _reap(services, notifier),
        "farewells": notifier.run,
        "sweep": lambda: _sweep(desk),
    }
    if services.background is not None:
        background["background_calls"] = services.background.run
    for name, work in background.items():
        services.tasks.start(name, work)
    try:
        yield
    finally:
        await services.tasks.stop()
        await desk.aclose()
        services.registry.close()
        await services.ledger.settle(timeout_s=5.0)
        await services.cold.aclose()
        if services.limiter is not None:
            await services.limiter.aclose()
        await services.table.aclose()


async def _sweep(desk: PrefillDesk) -> None:
    """Let go of prefills whose time is over."""
    while True:
        await asyncio.sleep(_SWEEP_EVERY_S)
        await desk.sweep()


async def _reap(services: Services, notifier: EvictionNotifier) -> None:
    """End the programs that nobody has called for long, and calls that nobody has any more."""
    idle_s = services.settings.program_idle_s
    every_s = min(_REAP_EVERY_S, idle_s / 2, services.settings.call_lease_s / _SIGNS)
    while True:
        try:
            gone = await services.table.expire(time(), idle_s)
            notifier.add(gone)
            await services.chains.flush()
            await services.prefills.flush(time())
            if services.limiter is not None:
                await services.limiter.refresh()
        except TableUnavailable as error:
            log.warning("the process table cannot be reached: %s", error)
        await asyncio.sleep(every_s)
