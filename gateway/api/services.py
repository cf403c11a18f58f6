"""What the handlers work with, put together by `gateway.app`."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx

from gateway.api.auth import Authenticator
from gateway.api.http import DepartureWatch
from gateway.api.ledger import Ledger
from gateway.api.limits import TenantLimits
from gateway.api.turns import Turns
from gateway.config import Settings
from gateway.engine.advice import KvAdvisor
from gateway.engine.estimate import PromptEstimator
from gateway.engine.registry import Registry
from gateway.engine.tokens import TokenCounter
from gateway.overlap.ahead import Ahead
from gateway.policies.route.registry import Router
from gateway.programs.handles import HandleStore
from gateway.programs.identity import ChainRoots
from gateway.programs.idle import IdleTimes
from gateway.programs.limits import Limiter
from gateway.programs.lineage.tracker import Lineage
from gateway.programs.table import ProcessTable
from gateway.telemetry.listeners import Listeners
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.receipts import Receipts
from gateway.telemetry.tasks import Supervisor
from gateway.tenants import Tenants


def call_ids() -> Callable[[], str]:
    """A source of call ids: unique over processes, and cheap."""
    prefix = os.urandom(6).hex()
    count = itertools.count(1)
    return lambda: f"call-{prefix}-{next(count):x}"


@dataclass(frozen=True, slots=True)
class Services:
    """The gateway's parts. `cold` is for health, models and administration; calls go through the
    replicas' own connections. lineage: None where calls without a key are programs of their own.
    limits: None where no tenant has any."""

    settings: Settings
    auth: Authenticator
    table: ProcessTable
    router: Router
    registry: Registry
    ledger: Ledger
    metrics: Metrics
    tasks: Supervisor
    chains: ChainRoots
    estimator: PromptEstimator
    idle: IdleTimes
    cold: httpx.AsyncClient
    tokens: TokenCounter
    receipts: Receipts
    advisor: KvAdvisor
    prefills: HandleStore
    lineage: Lineage | None = None
    tenants: Tenants = field(default_factory=Tenants)
    limiter: Limiter | None = None
    limits: TenantLimits | None = None
    ahead: Ahead = field(default_factory=Ahead)
    listeners: Listeners = field(default_factory=Listeners)
    departures: DepartureWatch = field(default_factory=DepartureWatch)
    turns: Turns = field(default_factory=Turns)
    next_call: Callable[[], str] = field(default_factory=call_ids)
    rng: random.Random = field(default_factory=random.Random)
    placed: Iterator[int] = field(default_factory=itertools.count)
