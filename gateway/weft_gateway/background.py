"""The parts that work in the background: batches, and runs over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter

from weft_gateway.api import batches as batch_routes
from weft_gateway.api import files
from weft_gateway.api import runs as run_routes
from weft_gateway.api.auth import Authenticator
from weft_gateway.calls.body_bytes import BodyBytes
from weft_gateway.calls.lifecycle import Lifecycle
from weft_gateway.calls.turns import Turns
from weft_gateway.config import Settings
from weft_gateway.constants import Constants
from weft_gateway.engine.registry import Registry
from weft_gateway.runs.batch_calls import Submit
from weft_gateway.runs.batch_files import BatchFiles
from weft_gateway.runs.batch_input import InputReader
from weft_gateway.runs.batch_runner import BatchRunner
from weft_gateway.runs.batch_store import BatchStore
from weft_gateway.runs.batches import Batches, Quota
from weft_gateway.runs.run_store import Run
from weft_gateway.runs.run_tokens import RunTokens
from weft_gateway.runs.runs import Runs
from weft_gateway.runs.sender import Sender
from weft_gateway.telemetry.listeners import Listeners
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.telemetry.tasks import Work


@dataclass(frozen=True, slots=True)
class Background:
    """Batches and runs of one gateway."""

    batches: Batches
    runs: Runs
    registry: Registry

    def start(self) -> None:
        """Continue what an earlier process has begun."""
        self.batches.start()

    @property
    def tasks(self) -> dict[str, Work]:
        """The background tasks by name."""
        return {
            "batches": self.batches.run,
            "old_files": self.batches.keep_house,
            "runs": self.runs.run,
        }

    async def aclose(self) -> None:
        """Stop everything, and release the folder."""
        await self.runs.aclose()
        await self.batches.aclose()

    def routers(
        self,
        auth: Authenticator,
        listeners: Listeners,
        turns: Turns,
        bodies: BodyBytes,
        settings: Settings,
        constants: Constants,
    ) -> Iterator[APIRouter]:
        """Yield the routes."""
        yield files.router(auth, self.batches, turns, bodies)
        yield batch_routes.router(auth, self.batches, turns, settings)
        yield batch_routes.messages_router(
            auth, self.batches, turns, bodies, self.registry.unknown, constants
        )
        yield run_routes.router(auth, self.runs, listeners, turns, settings.max_body_bytes)


def build_background(
    settings: Settings,
    constants: Constants,
    submit: Submit,
    sender: Sender,
    registry: Registry,
    lifecycle: Lifecycle,
    turns: Turns,
    metrics: Metrics,
    listeners: Listeners,
    tokens: RunTokens,
) -> Background:
    """Connect the parts. submit: makes one call. tokens: of runs."""
    s, c = settings, constants

    def batch_runner(store: BatchStore) -> BatchRunner:
        reader = InputReader(turns, registry, c.read_body_bytes)
        parts = BatchFiles(store, reader, turns, c.file_keep_s)
        return BatchRunner(store, parts, submit, sender, lifecycle, metrics)

    def changed(run: Run) -> None:
        listeners.publish(run_routes.listener_key(run.tenant, run.id), {})

    quota = Quota(
        s.file_bytes_per_tenant, c.files_per_tenant, c.batches_per_tenant, c.file_bytes,
        c.file_keep_s,
    )  # fmt: skip
    batches = Batches(Path(s.data_folder(s.port)), quota, batch_runner)
    runs = Runs(batches, tokens, s.base_url, s.connection_files, s.allowed_hosts, metrics, changed)
    return Background(batches, runs, registry)
