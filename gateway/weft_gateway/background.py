"""The parts that make calls in the background: batches, and runs of workflows over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter

from weft_gateway.api import batches as batch_routes
from weft_gateway.api import files, workflows
from weft_gateway.api.auth import Authenticator
from weft_gateway.api.run_events import listener_key
from weft_gateway.calls.body_bytes import BodyBytes
from weft_gateway.calls.lifecycle import Lifecycle
from weft_gateway.calls.turns import Turns
from weft_gateway.config import Settings
from weft_gateway.engine.registry import Registry
from weft_gateway.runs.batch_calls import Submit
from weft_gateway.runs.batch_files import BatchFiles
from weft_gateway.runs.batch_input import InputReader
from weft_gateway.runs.batch_runner import BatchRunner
from weft_gateway.runs.batch_store import BatchStore
from weft_gateway.runs.batches import Batches, Quota
from weft_gateway.runs.flow_checkers import Checkers
from weft_gateway.runs.flow_rules import Rules
from weft_gateway.runs.flow_runner import FlowRunner, Limits
from weft_gateway.runs.flow_store import FlowStore, Run
from weft_gateway.runs.flows import FlowQuota, Flows
from weft_gateway.runs.sender import Sender
from weft_gateway.telemetry.listeners import Listeners
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.telemetry.tasks import Work


@dataclass(frozen=True, slots=True)
class Background:
    """Batches and runs of one gateway."""

    batches: Batches
    flows: Flows

    def start(self) -> None:
        """Continue what an earlier process has begun."""
        self.batches.start()
        self.flows.start()

    @property
    def tasks(self) -> dict[str, Work]:
        """The background tasks by name."""
        return {
            "batches": self.batches.run,
            "old_files": self.batches.keep_house,
            "workflows": self.flows.run,
        }

    async def aclose(self) -> None:
        """Stop everything, and release the folder."""
        await self.flows.aclose()
        await self.batches.aclose()

    def routers(
        self,
        auth: Authenticator,
        listeners: Listeners,
        turns: Turns,
        bodies: BodyBytes,
        settings: Settings,
    ) -> Iterator[APIRouter]:
        """Yield the routes."""
        yield files.router(auth, self.batches, turns, bodies)
        yield batch_routes.router(auth, self.batches, turns, settings)
        yield batch_routes.messages_router(
            auth, self.batches, turns, bodies, self.flows.registry.unknown, settings
        )
        yield workflows.router(auth, self.flows, listeners, turns, settings)


def build_background(
    settings: Settings,
    submit: Submit,
    sender: Sender,
    registry: Registry,
    lifecycle: Lifecycle,
    turns: Turns,
    metrics: Metrics,
    listeners: Listeners,
) -> Background:
    """Connect the parts. submit: makes one call."""
    s = settings

    def batch_runner(store: BatchStore) -> BatchRunner:
        reader = InputReader(turns, registry, s.read_body_bytes)
        parts = BatchFiles(store, reader, turns, s.file_keep_s)
        return BatchRunner(store, parts, submit, sender, lifecycle, metrics)

    def changed(run: Run) -> None:
        listeners.publish(listener_key(run.tenant, run.id), {})

    rules = Rules(s.connection_files, frozenset(s.workflow_writable), s.allowed_hosts)
    limits = Limits(
        s.workflow_runs, s.workflow_memory_bytes, s.workflow_stall_s, s.workflow_rows,
        s.read_body_bytes, s.file_keep_s, s.file_bytes_per_tenant,
    )  # fmt: skip

    def flow_runner(store: FlowStore, stored: BatchStore) -> FlowRunner:
        return FlowRunner(store, stored, rules, limits, submit, sender, lifecycle, metrics, changed)

    quota = Quota(
        s.file_bytes_per_tenant, s.files_per_tenant, s.batches_per_tenant, s.file_bytes,
        s.file_keep_s,
    )  # fmt: skip
    batches = Batches(Path(s.data_folder(s.port)), quota, batch_runner)
    most = FlowQuota(s.workflows_per_tenant, s.workflow_runs_per_tenant)
    checkers = Checkers(s.workflow_memory_bytes, s.workflow_stall_s)
    flows = Flows(batches, registry, rules, most, checkers, flow_runner)
    return Background(batches, flows)
