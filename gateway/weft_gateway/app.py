"""The composition root: the only file that names concrete classes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from importlib.metadata import version
from time import time
from typing import TYPE_CHECKING

import httpx
from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from weft_gateway import prices
from weft_gateway import slo as slo_file
from weft_gateway.api import (
    admin,
    failures,
    files,
    hints,
    journal,
    models,
    page,
    replicas,
    sessions,
    status,
    stories,
    usage,
)
from weft_gateway.api import batches as batch_routes
from weft_gateway.api import runs as run_routes
from weft_gateway.api.auth import Authenticator
from weft_gateway.api.board import Board
from weft_gateway.api.call import CallEndpoint
from weft_gateway.api.dispatch import Dispatcher
from weft_gateway.api.failures import Failures
from weft_gateway.api.history import History
from weft_gateway.api.keep_alive import KeepAlives
from weft_gateway.api.openapi import ERRORS, complete_document
from weft_gateway.api.passthrough import Passthrough
from weft_gateway.api.web import Cors
from weft_gateway.api.websocket import ResponsesSockets
from weft_gateway.calls.admission import Gates
from weft_gateway.calls.background import BackgroundCalls
from weft_gateway.calls.body_bytes import BodyBytes
from weft_gateway.calls.budgets import Budgets
from weft_gateway.calls.call import call_ids
from weft_gateway.calls.client import DisconnectMonitor
from weft_gateway.calls.engines import Engines
from weft_gateway.calls.features.admission import AdmissionObserver
from weft_gateway.calls.features.background import BackgroundObserver
from weft_gateway.calls.features.budgets import BudgetObserver
from weft_gateway.calls.features.capacity import CapacityObserver
from weft_gateway.calls.features.costs import CostObserver
from weft_gateway.calls.features.feasible import FeasibleObserver
from weft_gateway.calls.features.foreground import ForegroundObserver
from weft_gateway.calls.features.journal import JournalObserver
from weft_gateway.calls.features.learning import TokenLearning
from weft_gateway.calls.features.limits import LimitsObserver
from weft_gateway.calls.features.lineage import LineageObserver
from weft_gateway.calls.features.live import LiveObserver
from weft_gateway.calls.features.metrics import MetricsObserver
from weft_gateway.calls.features.prefill import AutoPrefill, PrefillObserver
from weft_gateway.calls.features.prompts import PromptObserver
from weft_gateway.calls.features.receipts import ReceiptsObserver
from weft_gateway.calls.features.slo import SloObserver
from weft_gateway.calls.features.stored_answers import StoredAnswers
from weft_gateway.calls.features.tools import ToolDispatchObserver
from weft_gateway.calls.features.transcripts import TranscriptObserver
from weft_gateway.calls.identify import Identifier
from weft_gateway.calls.lifecycle import Lifecycle
from weft_gateway.calls.limits import TenantLimits
from weft_gateway.calls.members import Membership
from weft_gateway.calls.observers import Observers
from weft_gateway.calls.outlook import Outlook
from weft_gateway.calls.path import CallPath
from weft_gateway.calls.placement import Placement, PromptCounter
from weft_gateway.calls.prefills import PrefillManager
from weft_gateway.calls.spending import Spending
from weft_gateway.calls.turns import Turns
from weft_gateway.config import Settings
from weft_gateway.constants import CONSTANTS, Constants
from weft_gateway.engine.advice import KvAdvisor
from weft_gateway.engine.eviction_notifier import EvictionNotifier
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.health import HealthLoop
from weft_gateway.engine.pool import Timeouts, watch
from weft_gateway.engine.registry import Registry
from weft_gateway.engine.tokens import TokenCounter
from weft_gateway.model import Program
from weft_gateway.model.slo import Late
from weft_gateway.overlap.next_turn import NextTurnPredictor
from weft_gateway.policies.retry_budget import RetryBudget
from weft_gateway.policies.route import registry as routers
from weft_gateway.programs.alpha import SharedAlpha
from weft_gateway.programs.handles import HandleStore
from weft_gateway.programs.lineage.tracker import Lineage
from weft_gateway.programs.prompts import Prompts
from weft_gateway.programs.table import ProcessTable, TableUnavailable
from weft_gateway.programs.transcripts import Transcripts
from weft_gateway.runs.batch_files import BatchFiles
from weft_gateway.runs.batch_input import InputReader
from weft_gateway.runs.batch_runner import BatchRunner
from weft_gateway.runs.batches import Batches, Quota
from weft_gateway.runs.patient import PatientObserver
from weft_gateway.runs.run_tokens import RunTokens
from weft_gateway.runs.runs import Runs
from weft_gateway.runs.sender import Sender
from weft_gateway.runs.store import Store
from weft_gateway.stores import make_stores, make_table, make_tenants
from weft_gateway.telemetry.journal import Journal
from weft_gateway.telemetry.listeners import Listeners
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.telemetry.receipts import Receipts
from weft_gateway.telemetry.slo_tally import SloTally
from weft_gateway.telemetry.tasks import Spawner, Supervisor, Work
from weft_gateway.tenants import TenantsError

if TYPE_CHECKING:
    from weft_gateway.calls.features.traces import TraceObserver

log = logging.getLogger(__name__)

_REAP_EVERY_S = 30.0
_SWEEP_EVERY_S = 1.0
_FOLLOW_S = 0.5
# Lease renewals per call lease.
_SIGNS = 4
# Bodies of the maximum size that the gateway holds.
_BODIES = 64


class Gateway:
    """The gateway's parts, connected. Each part receives its dependencies; this object lets the
    process start, stop and inspect them. `app`: the ASGI application.
    """

    def __init__(
        self,
        settings: Settings,
        table: ProcessTable | None = None,
        constants: Constants = CONSTANTS,
    ) -> None:
        """`table`: replaces the process table that the settings select."""
        s = self.settings = settings
        c = self.constants = constants
        self.metrics = metrics = Metrics()
        self.table = table = table if table is not None else make_table(s, c, metrics.task_failures)
        link = getattr(table, "link", None)
        self.stores = stores = make_stores(c, s.stored_answers_bytes, link)
        self.tasks = Supervisor(metrics.task_failures)
        self.spawner = spawner = Spawner("ledger", metrics.task_failures)
        slos = slo_file.load(s.slo_file)
        self.tenants = tenants = make_tenants(s, slos)
        slos = replace(slos, tenants=tenants.grants)
        run_tokens = RunTokens()
        self.auth = auth = Authenticator(tenants, s.admin_key, run_tokens)
        self.registry = registry = Registry(
            s.replica_urls,
            _timeouts(c),
            s.replica_api_key,
            max_answer_bytes=c.max_answer_bytes,
            aliases=dict(s.model_aliases),
        )
        http = httpx.AsyncClient(timeout=c.connect_timeout_s, trust_env=False)
        self.engine_client = engine_client = EngineClient(http, s.engine_secret)
        self.advisor = advisor = KvAdvisor(registry, engine_client)
        chains, lineage = stores.chains, Lineage(stores.lineage) if c.lineage else None
        limits = TenantLimits(tenants, stores.limiter)
        self.background = background = BackgroundCalls(
            limits, registry, engine_client, chains, c.first_byte_timeout_s
        )
        self.health = health = HealthLoop(
            registry, engine_client, c.health_interval_s, c.connect_timeout_s
        )
        self.members = members = Membership(
            stores.members, registry, table, engine_client, background, s.replica_urls, self._gone
        )
        budget, count_retry = RetryBudget(c.retry_budget), metrics.retry
        receipts, calls_journal = Receipts(c.receipts), Journal()
        self.listeners = listeners = Listeners(heartbeat_s=s.heartbeat_s or None)
        self.turns = turns = Turns()
        self.bodies = bodies = BodyBytes(c.body_bytes or _BODIES * s.max_body_bytes)
        metrics.body_bytes.set_function(lambda: bodies.total)
        self.disconnects = disconnects = DisconnectMonitor()
        self.next_turns = next_turns = NextTurnPredictor()
        tokens, next_call = TokenCounter(), call_ids()
        self.transcripts = transcripts = Transcripts(c.transcript_bytes)
        self.prompts = prompts = Prompts()

        # The path of a call.
        observers = Observers()
        router = routers.build(s.balancer, c.locality_threshold_tokens)
        counter = PromptCounter(tokens, router)
        identifier = Identifier(chains, registry)
        budgets = self.budgets = Budgets()
        # Costs are predicted for balancers that use them, and for targets.
        predicts = s.balancer in routers.BY_COST or bool(slos.classes)
        outlook = Outlook(budgets, table, s.balancer == "soonest") if predicts else None
        health.costs = budgets.costs.set_engine if predicts else None
        placement = Placement(router, registry, table, counter, outlook)

        def set_alpha(alpha: float) -> None:
            placement.router = routers.build(s.balancer, c.locality_threshold_tokens, alpha)

        self.alpha = alpha = SharedAlpha(set_alpha, link)
        tally = SloTally(slos, metrics, tenants.weight, tenants.name)
        self.slo = SloObserver(slos, table, budgets, tally)
        engines = Engines(
            registry,
            engine_client,
            counter,
            tenants,
            turns,
            budgets,
            tag_prompts=c.tag_prompts,
            repairs=s.repairs,
        )
        self.gates = gates = Gates(lambda: members.gateways, c.admission_wait_s)
        spending = Spending(tenants, slos, prices.load(s.prices_file), registry, table)
        lifecycle = Lifecycle(
            table,
            registry.prefixes,
            advisor,
            engines.ask_report,
            spawner,
            metrics.error,
            spending,
            self._program_ended,
        )
        path = CallPath(
            placement,
            lifecycle,
            engines,
            next_call,
            metrics.error,
            attempts=c.attempts_per_call,
            budget=budget,
            count_retry=count_retry,
            hold_s=c.hold_s,
        )
        self.prefills = prefills = PrefillManager(
            HandleStore(table),
            placement,
            lifecycle,
            engines,
            observers,
            advisor,
            spawner,
            next_call,
            bodies,
            most=c.prefills,
            most_of_tenant=c.prefills_per_tenant,
        )

        # The features, in the order of their hooks. Each line is optional.
        add = observers.add
        self.traces = _traces(tenants.name)
        add(self.traces)
        add(TranscriptObserver(transcripts, counter))
        add(StoredAnswers(chains))
        add(LimitsObserver(limits, counter, table) if tenants.limited else None)
        add(BackgroundObserver(background))
        add(LineageObserver(lineage, table, turns, receipts, spawner) if lineage else None)
        add(CostObserver(budgets, table, predicts))
        add(self.slo)
        limits_of = BudgetObserver(tenants, table, metrics, self.listeners, bool(spending.prices))
        spending.told = limits_of.told
        add(limits_of)
        add(PrefillObserver(prefills, table))
        add(ToolDispatchObserver(listeners))
        add(AutoPrefill(next_turns, prefills, spawner) if c.auto_prefill else None)
        add(TokenLearning(counter))
        # Before the prompts, which forget what a call continues.
        add(JournalObserver(calls_journal))
        add(PromptObserver(prompts, budgets, metrics))
        add(ReceiptsObserver(receipts, identifier.named) if receipts.on else None)
        add(MetricsObserver(metrics))
        self.live = live = LiveObserver()
        add(live)
        self.foreground = foreground = ForegroundObserver()
        add(foreground)
        picks = any(one.late is not Late.SERVE for one in slos.classes.values())
        add(FeasibleObserver(slos, budgets) if picks else None)
        held = s.admission == "auto"
        # Last, so that the receipt of a call that waits exists.
        add(AdmissionObserver(gates, registry, tenants, metrics) if held else None)
        self.capacity = capacity = CapacityObserver(
            registry, table, bodies, c.new_program_wait_s, lambda: members.gateways
        )
        add(capacity)
        self.sender = sender = Sender(registry, table, tenants, foreground, c.batch_calls)
        add(PatientObserver(sender, registry, table))

        # HTTP.
        answers = Failures(metrics.error, next_call)
        history = History(chains, background, turns, s)
        self.keep_alives = keep_alives = KeepAlives(s.heartbeat_s)
        calls = CallEndpoint(
            auth,
            identifier,
            history,
            path,
            observers,
            disconnects,
            keep_alives,
            turns,
            bodies,
            transcripts,
            answers,
            next_call,
            s,
            c,
        )

        # Batches, and runs over HTTP.
        store = Store(s.data_folder(s.port))
        reader = InputReader(turns, registry, c.read_body_bytes)
        batch_files = BatchFiles(store, reader, turns, c.file_keep_s)
        runner = BatchRunner(store, batch_files, calls.inside, sender, lifecycle, metrics)
        quota = Quota(
            s.file_bytes_per_tenant,
            c.files_per_tenant,
            c.batches_per_tenant,
            c.file_bytes,
            c.file_keep_s,
        )
        self.batches = batches = Batches(store, quota, runner)
        self.runs = runs = Runs(
            batches, run_tokens, s.base_url, s.connection_files, s.allowed_hosts, metrics, listeners
        )
        passthrough = Passthrough(
            auth, registry, history, limits, disconnects, turns, bodies, s, c, budget, count_retry
        )
        sockets = ResponsesSockets(s, c, auth, turns, bodies, metrics, chains)
        self.board = board = Board(
            live,
            table,
            registry,
            engine_client,
            gates,
            tenants.name,
            s.heartbeat_s,
        )
        pages = _fastapi(self)
        for routes in (
            status.router(
                auth,
                table,
                registry,
                metrics,
                self.tasks,
                budgets.costs if predicts else None,
            ),
            models.router(auth, registry),
            sessions.router(auth, table, lifecycle, receipts, turns, slos, s),
            admin.router(auth, table, registry, engine_client, gates, self.slo.tally, alpha, s),
            journal.router(auth, calls_journal, s),
            replicas.router(auth, members, health, s),
            stories.router(auth, table, receipts, listeners, turns),
            page.router(auth, board, table, lifecycle, receipts, s),
            usage.router(auth, table, turns, s),
            files.router(auth, batches, turns, bodies),
            batch_routes.router(auth, batches, turns, bodies, reader, s),
            run_routes.router(auth, runs, turns, s.max_body_bytes),
            hints.prefill_router(
                auth,
                identifier,
                prefills,
                lineage,
                limits,
                tokens,
                turns,
                bodies,
                s,
                c,
            ),
            hints.router(auth, identifier, table, registry, advisor, s),
        ):
            pages.include_router(routes)
        failures.install(pages, answers)
        complete_document(pages)
        cors = Cors(s.cors_origins) if s.cors_origins else None
        self.app = Dispatcher(calls, passthrough, sockets, pages, answers, cors, s)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the background tasks, from before the first call until after the last one."""
        table = self.table
        health = self.health
        # The first call must find the present members, with a known state.
        with contextlib.suppress(TableUnavailable):
            await self.members.sync()
        await health.check_all()
        timeouts = _timeouts(self.constants)
        notifier = EvictionNotifier(self.advisor, lambda key: table.peek(key) is not None)
        background: dict[str, Work] = {
            "health": health.run,
            "deadlines": lambda: watch(self.registry.upstreams, timeouts),
            "departures": self.disconnects.run,
            "keep_alives": self.keep_alives.run,
            "reap": lambda: self._reap(notifier),
            "program_ends": notifier.run,
            "sweep": self._sweep,
            "members": self.members.run,
            "calls_in_flight": self._follow,
            "background_calls": self.background.run,
            "batches": self.batches.run,
            "old_files": self.batches.keep_house,
            "runs": self.runs.run,
        }
        self.batches.start()
        for name, work in background.items():
            self.tasks.start(name, work)
        try:
            yield
        finally:
            await self.tasks.stop()
            self.board.close()
            await self.runs.aclose()
            await self.batches.aclose()
            await self.prefills.aclose()
            self.registry.close()
            await self.spawner.settle(timeout_s=5.0)
            await self.engine_client.aclose()
            await self.stores.limiter.aclose()
            await self.stores.members.leave()
            await table.aclose()
            if self.traces is not None:
                await self.traces.aclose(programs_end=getattr(table, "link", None) is None)

    def reload_keys(self) -> None:
        """Read the keys file again. Calls in flight finish, also those of removed keys."""
        if not self.settings.keys_file:
            log.info("SIGHUP: there is no keys file to read (WEFT_KEYS_FILE)")
            return
        try:
            count = self.tenants.reload()
        except TenantsError as error:
            log.error("the keys are unchanged: %s", error)
        else:
            log.info("%s: %d API keys are accepted", self.settings.keys_file, count)

    def _program_ended(self, program: Program) -> None:
        """Handle the end of a program by its handle or its last call."""
        self.transcripts.forget(program.key)
        self.prompts.forget(program.key)
        self.gates.program_ended(program.key)
        self.slo.program_ended(program)
        self.live.program_ended(program.key)
        if self.traces is not None:
            self.traces.program_ended(program)

    def _gone(self, replica: str) -> None:
        """Forget a replica that was removed."""
        self.metrics.forget(replica)
        self.gates.forget(replica)
        self.foreground.forget(replica)
        self.capacity.forget(replica)
        self.budgets.costs.forget(replica)
        self.health.forget(replica)

    async def _follow(self) -> None:
        """Follow the calls that other gateways open and close, and a change of alpha: placements
        use the last ones.
        """
        while True:
            await asyncio.sleep(_FOLLOW_S)
            self.live.look_at(self.registry)
            with contextlib.suppress(TableUnavailable):
                await self.table.count()
                await self.alpha.sync()

    async def _sweep(self) -> None:
        """Release expired prefills, and memory."""
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            await self.prefills.sweep()
            self.bodies.trim()

    async def _reap(self, notifier: EvictionNotifier) -> None:
        """End programs that were idle too long, and calls of gateways that have disappeared."""
        idle_s = self.settings.program_idle_s
        every_s = min(_REAP_EVERY_S, idle_s / 2, self.constants.call_lease_s / _SIGNS)
        while True:
            try:
                gone = await self.table.expire(time(), idle_s)
                notifier.add(gone)
                for each in gone:
                    self.transcripts.forget(each.key)
                    self.prompts.ended(each.key)
                    self.gates.program_ended(each.key)
                    self.slo.program_ended(each.program, idle=True)
                    self.live.program_ended(each.key, "it was idle")
                    if self.traces is not None:
                        self.traces.program_ended(each.program, idle=True)
                await self.stores.chains.flush()
                await self.stores.limiter.refresh()
            except TableUnavailable as error:
                log.warning("the process table is unreachable: %s", error)
            await asyncio.sleep(every_s)


def _traces(name_of: Callable[[str], str]) -> TraceObserver | None:
    """Return the observer if OpenTelemetry's own variables turn it on. Nothing of OpenTelemetry is
    imported otherwise.
    """
    off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if off or not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return None
    try:
        from weft_gateway.calls.features.traces import TraceObserver
    except ImportError as error:
        log.warning(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but there are no traces (%s). Install them: "
            'pip install "weft-gateway[otel]"',
            error,
        )
        return None
    return TraceObserver(name_of)


def _fastapi(gateway: Gateway) -> FastAPI:
    # FastAPI with the scripts of its /docs page included, instead of loaded from another host.
    return FastAPIOffline(
        docs_url="/docs",
        redoc_url=None,
        swagger_ui_parameters={"validatorUrl": None},
        title="Weft",
        version=version("weft-gateway"),
        responses=ERRORS,
        generate_unique_id_function=lambda route: route.name,
        lifespan=lambda _: gateway.running(),
        redirect_slashes=False,
    )


def _timeouts(c: Constants) -> Timeouts:
    return Timeouts(
        c.connect_timeout_s,
        c.first_byte_timeout_s,
        c.idle_timeout_s,
        c.lost_after_s,
        c.hold_s,
    )
