"""Workflows and runs of tenants: what the HTTP routes do, on top of the store and the runner.

They live beside files and batches, in the same folder, and its owner runs them.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Final
from weakref import WeakValueDictionary

from weft_run.io.rows import Input, RowsError
from weft_run.yaml_errors import nearest

from weft_gateway import errors
from weft_gateway.engine.registry import Registry
from weft_gateway.errors import ApiError
from weft_gateway.runs.batch_store import BatchStore
from weft_gateway.runs.batch_store import is_id as is_file_id
from weft_gateway.runs.batches import Batches, disk_error, unavailable
from weft_gateway.runs.flow_checkers import Checkers
from weft_gateway.runs.flow_child import ChildLost
from weft_gateway.runs.flow_rules import Rules
from weft_gateway.runs.flow_runner import FlowRunner
from weft_gateway.runs.flow_store import (
    FlowStore,
    ModelUse,
    Run,
    StoredWorkflow,
    is_id,
    new_id,
)
from weft_gateway.runs.flow_wire import INPUT, WORKFLOW, Check, Checked, Wrong

_HOUSEKEEPING_S: Final = 60.0
_FOLLOW_S: Final = 0.2
_SHOWN: Final = 64
# The first bytes of a Parquet file.
_PARQUET: Final = b"PAR1"
_PURPOSES: Final = ("workflow", "batch", "user_data")


@dataclass(frozen=True, slots=True)
class FlowQuota:
    """Limits of one tenant. workflows: stored. runs: unfinished."""

    workflows: int
    runs: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run to create. rows or input_file: its input; each row is a JSON text in one line. tokens,
    errors: the budget, None for no limit. batch_ms: see `Run`.
    """

    rows: Sequence[bytes] | None = None
    input_file: str = ""
    tokens: int | None = None
    errors: int | None = None
    batch_ms: int = 0


@dataclass(slots=True, eq=False)
class Flows:
    """The workflows and runs of one gateway. make_runner: creates the runner for open stores."""

    batches: Batches
    registry: Registry
    rules: Rules
    quota: FlowQuota
    checkers: Checkers
    make_runner: Callable[[FlowStore, BatchStore], FlowRunner]
    _store: FlowStore | None = field(default=None, init=False)
    _runner: FlowRunner | None = field(default=None, init=False)
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=WeakValueDictionary, init=False
    )

    # The life of the process

    def start(self) -> None:
        """Open the store if it exists. Call it after `Batches.start`."""
        if self._store is None and FlowStore.file(self.batches.folder).is_file():
            with suppress(ApiError):
                self._open()

    async def run(self) -> None:
        """Once this process owns the folder, run the runs and delete old ones; until cancelled."""
        kept_s = 0.0
        while True:
            self.start()
            owns = self._store is not None and self.batches.store.owner
            if monotonic() - kept_s >= _HOUSEKEEPING_S:
                await self.checkers.rest()
                kept_s = monotonic()
                if owns:
                    self.store.sweep()
                    self.store.delete_old(time() - self.batches.quota.keep_s)
            if owns:
                self.runner.follow()
            await asyncio.sleep(_FOLLOW_S)

    async def aclose(self) -> None:
        """Stop all runs. Call it before `Batches.aclose`."""
        await self.checkers.aclose()
        if self._runner is not None:
            await self._runner.aclose()
        if self._store is not None:
            self._store.close()

    @property
    def store(self) -> FlowStore:
        """The store, opened at the first use. Raises ApiError 503."""
        return self._store or self._open()

    @property
    def runner(self) -> FlowRunner:
        """The runner. Raises ApiError 503."""
        assert self.store
        assert self._runner is not None
        return self._runner

    def _open(self) -> FlowStore:
        files = self.batches.store
        try:
            store = FlowStore(self.batches.folder)
        except OSError as error:
            raise disk_error(error) from None
        except sqlite3.Error as error:
            raise unavailable(str(error)) from None
        self._store = store
        self._runner = self.make_runner(store, files)
        return store

    # Workflows

    async def create(self, tenant: str, text: str, file: str) -> StoredWorkflow:
        """Check a workflow in a separate process, and store it. file: its name in messages. Raises
        ApiError 400 with file, line and reason of each error.
        """
        store = self.store
        lock = self._locks.setdefault(tenant, asyncio.Lock())
        # One check of each tenant at a time, so that a tenant cannot delay all others.
        async with lock:
            if store.count_workflows(tenant) >= self.quota.workflows:
                what = f"The limit of {self.quota.workflows} workflows per API key is reached. "
                raise ApiError(403, "storage_limit_reached", f"{what}Delete some first.")
            found = await self._checked(text, file)
        models = [ModelUse(*one) for one in found.models]
        workflow = StoredWorkflow(
            new_id("wf_"), tenant, int(time()), file, text, found.plan, found.inputs, models,
            found.calls, found.needs_model,
        )  # fmt: skip
        store.add_workflow(workflow)
        return workflow

    async def _checked(self, text: str, file: str) -> Checked:
        try:
            found = await self.checkers.check(Check(text, file, self.rules))
        except ChildLost as error:
            what = f"The workflow cannot be checked: {error}."
            raise ApiError(400, "invalid_workflow", what) from None
        except OSError as error:
            raise disk_error(error) from None
        if isinstance(found, Wrong):
            raise ApiError(400, found.code, found.message)
        assert isinstance(found, Checked)
        return found

    def workflow(self, tenant: str, workflow_id: str) -> StoredWorkflow:
        """Return a tenant's workflow. Raises ApiError 404."""
        found = self.store.workflow(tenant, workflow_id) if is_id(workflow_id) else None
        if found is None:
            raise _not_found("workflow", workflow_id)
        return found

    def workflows(self, tenant: str, limit: int, after: str) -> list[StoredWorkflow]:
        """Return a page of a tenant's workflows, the newest first. Raises ApiError 404."""
        if after:
            self.workflow(tenant, after)
        return self.store.workflows(tenant, limit, after)

    def delete(self, tenant: str, workflow_id: str) -> None:
        """Delete a workflow. Its runs continue. Raises ApiError 404."""
        self.store.delete_workflow(self.workflow(tenant, workflow_id).id)

    # Runs

    async def begin(self, tenant: str, workflow_id: str, wanted: Wanted) -> Run:
        """Create a run. Raises ApiError 400 for an input or a model that cannot be used, 403 and
        429 at a limit, and 404 for an unknown workflow.
        """
        workflow = self.workflow(tenant, workflow_id)
        model = self._model(workflow)
        self._check_open(tenant)
        run = Run(
            new_id("run_"), tenant, workflow.id, workflow.file, int(time()),
            input_file=wanted.input_file, model=model, calls=workflow.calls,
            budget_tokens=wanted.tokens, max_errors=wanted.errors, batch_ms=wanted.batch_ms,
        )  # fmt: skip
        folder = self.store.folder(run.id)
        kept = False
        try:
            folder.mkdir(mode=0o700)
            (folder / WORKFLOW).write_text(workflow.text, encoding="utf-8")
            if wanted.rows is None:
                self._link(tenant, wanted.input_file, run)
            else:
                await asyncio.to_thread(self._write, run, wanted.rows, workflow.inputs)
            self._check_open(tenant)
            self.store.save(run)
            kept = True
        except OSError as error:
            raise disk_error(error) from None
        except sqlite3.Error as error:
            raise unavailable(str(error)) from None
        finally:
            if not kept:
                self.store.forget(run.id)
        if self.batches.store.owner:
            self.runner.begin(run)
        return run

    def _link(self, tenant: str, file_id: str, run: Run) -> None:
        """Take a file as the input. The run keeps it if its tenant deletes it meanwhile."""
        file = self.batches.store.file(tenant, file_id) if is_file_id(file_id) else None
        if file is None or file.hidden:
            what = f"No file with id {file_id[:_SHOWN]!r} on this gateway."
            raise ApiError(400, "invalid_input_file", what, param="input_file_id")
        if file.purpose not in _PURPOSES:
            what = f"The purpose of the input file must be 'workflow', not {file.purpose!r}."
            raise ApiError(400, "invalid_input_file", what, param="input_file_id")
        path = self.batches.store.path(file.id)
        with path.open("rb") as content:
            if content.read(len(_PARQUET)) == _PARQUET:
                what = (
                    f"{file.name[:_SHOWN]!r} is a Parquet file. The input of a run over HTTP must "
                    "be JSON lines: one object per line."
                )
                raise ApiError(400, "invalid_input_file", what, param="input_file_id")
        os.link(path, self.store.folder(run.id) / INPUT)
        run.input_name = file.name[:_SHOWN]

    def _write(self, run: Run, rows: Sequence[bytes], inputs: dict[str, str]) -> None:
        """Write and check rows. Raises ApiError 400."""
        path = self.store.folder(run.id) / INPUT
        path.write_bytes(b"\n".join(rows))
        try:
            Input(path, inputs).scan()
        except RowsError as error:
            # Each row is one line. The rows of a body, and of an output, have numbers from 0.
            place = re.compile(rf"^{re.escape(str(path))}:(\d+)", re.MULTILINE)
            message = place.sub(lambda found: f"rows.{int(found[1]) - 1}", str(error))
            raise ApiError(400, "invalid_rows", message, param="rows") from None

    def _model(self, workflow: StoredWorkflow) -> str:
        """Return the model of operators without one. Raises ApiError 400."""
        served = sorted({name for one in self.registry.able() for name in one.served})
        if served:
            for use in workflow.models:
                if use.name and not self.registry.knows(use.name):
                    place = f"{workflow.file}:{use.line}: {use.operator or 'model'}"
                    what = f"{place}: no replica serves {use.name!r}{nearest(use.name, served)}"
                    raise ApiError(400, "model_not_found", what, param="model")
        if not workflow.needs_model:
            return ""
        if not served:
            raise errors.of("no_replica")
        if len(served) != 1:
            known = ", ".join(served)
            places = [f":{use.line}: {use.operator}" for use in workflow.models if not use.name]
            place = f"{workflow.file}{''.join(places)}"
            what = f"{place}: no model is named, and the replicas serve: {known}"
            raise ApiError(400, "model_required", what, param="model")
        return served[0]

    def _check_open(self, tenant: str) -> None:
        """Raise ApiError if the tenant cannot have another run now."""
        if len([*self.store.unfinished(tenant)]) >= self.quota.runs:
            what = f"At most {self.quota.runs} runs may be unfinished at once."
            raise ApiError(429, "too_many_runs", what)
        self.batches.check_storage(tenant)

    def find(self, tenant: str, run_id: str) -> Run:
        """Return a tenant's run. Raises ApiError 404."""
        found = self.store.run(tenant, run_id) if is_id(run_id) else None
        if found is None:
            raise _not_found("run", run_id)
        return self.runner.known(run_id) or found

    def runs(self, tenant: str, limit: int, after: str) -> list[Run]:
        """Return a page of a tenant's runs, the newest first. Raises ApiError 404."""
        if after:
            self.find(tenant, after)
        found = self.store.runs(tenant, limit, after)
        return [self.runner.known(run.id) or run for run in found]

    def cancel(self, tenant: str, run_id: str) -> Run:
        """Cancel a run. One that has ended stays unchanged. Raises ApiError 404."""
        run = self.find(tenant, run_id)
        if not run.ended:
            self.store.cancel(run.id, time())
            self.runner.cancel(run.id)
        return self.find(tenant, run_id)

    def output(self, tenant: str, run_id: str) -> str:
        """Return the id of the file with the output. Raises ApiError 404."""
        run = self.find(tenant, run_id)
        if not run.ended or not run.output_file:
            what = f"Run {run.id} has no output: its status is {run.status.value}."
            raise ApiError(404, "no_output", what)
        return run.output_file


def _not_found(kind: str, name: str) -> ApiError:
    text = (
        f"No {kind} with id {name[:_SHOWN]!r}. Workflows and runs belong to the gateway that "
        "created them, and to those with the same folder."
    )
    return ApiError(404, f"{kind}_not_found", text)
