"""What the handlers work with, put together by `weft_gateway.app`."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx

from weft_gateway.api.auth import Authenticator
from weft_gateway.api.background import BackgroundCalls
from weft_gateway.api.http import DepartureWatch
from weft_gateway.api.ledger import Ledger
from weft_gateway.api.limits import TenantLimits
from weft_gateway.api.turns import Turns
from weft_gateway.config import Settings
from weft_gateway.engine.advice import KvAdvisor
from weft_gateway.engine.estimate import PromptEstimator
from weft_gateway.engine.registry import Registry
from weft_gateway.engine.tokens import TokenCounter
from weft_gateway.overlap.next_turn import NextTurnPredictor
from weft_gateway.policies.route.registry import Router
from weft_gateway.programs.handles import HandleStore
from weft_gateway.programs.identity import ResponseStore
from weft_gateway.programs.limits import Limiter
from weft_gateway.programs.lineage.tracker import Lineage
from weft_gateway.programs.table import ProcessTable
from weft_gateway.telemetry.listeners import Listeners
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.telemetry.receipts import Receipts
from weft_gateway.telemetry.tasks import Supervisor
from weft_gateway.tenants import Tenants


def call_ids() -> Callable[[], str]:
    """A source of call ids: unique over processes, and cheap."""
    prefix = os.urandom(6).hex()
    count = itertools.count(1)
    return lambda: f"call-{prefix}-{next(count):x}"


@dataclass(frozen=True, slots=True)
class Services:
    """The gateway's parts. `cold` is for health, models and administration; calls go through the
    replicas' own connections. lineage: None where calls without a key are programs of their own.
    limits, background: None where no tenant has limits."""

    settings: Settings
    auth: Authenticator
    table: ProcessTable
    router: Router
    registry: Registry
    ledger: Ledger
    metrics: Metrics
    tasks: Supervisor
    chains: ResponseStore
    estimator: PromptEstimator
    cold: httpx.AsyncClient
    tokens: TokenCounter
    receipts: Receipts
    advisor: KvAdvisor
    prefills: HandleStore
    lineage: Lineage | None = None
    tenants: Tenants = field(default_factory=Tenants)
    limiter: Limiter | None = None
    limits: TenantLimits | None = None
    background: BackgroundCalls | None = None
    ahead: NextTurnPredictor = field(default_factory=NextTurnPredictor)
    listeners: Listeners = field(default_factory=Listeners)
    departures: DepartureWatch = field(default_factory=DepartureWatch)
    turns: Turns = field(default_factory=Turns)
    next_call: Callable[[], str] = field(default_factory=call_ids)
    rng: random.Random = field(default_factory=random.Random)
    placed: Iterator[int] = field(default_factory=itertools.count)
