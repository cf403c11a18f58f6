"""The bodies and answers of the routes for workflows and their runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

MAX_ROWS: int = 10_000
MAX_BATCH_MS: int = 60_000


class NewRun(BaseModel, extra="forbid"):
    """A run to create."""

    rows: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_ROWS)] | None = Field(
        None, description="the rows, each an object with the inputs of the workflow"
    )
    input_file_id: str | None = Field(
        None, description="id of a file with the purpose `workflow`: JSON lines, one row each"
    )
    max_errors: int | None = Field(
        None, ge=0, strict=True, description="stop the run if more rows have failed"
    )
    budget_tokens: int | None = Field(
        None, ge=1, strict=True, description="stop the run before its calls use more tokens"
    )
    batch_ms: int = Field(
        0,
        ge=0,
        le=MAX_BATCH_MS,
        strict=True,
        description="join runs of this workflow that begin within this time, ms; 0: run alone",
    )

    @model_validator(mode="after")
    def _has_one_input(self) -> NewRun:
        if (self.rows is None) == (self.input_file_id is None):
            raise ValueError("needs either 'rows' or 'input_file_id', and not both")
        return self


class Operator(BaseModel):
    """An operator that runs. reads: operators and inputs."""

    name: str
    kind: str
    for_each: str | None
    reads: list[str]


class Rewrite(BaseModel):
    """The effect of a rewrite. into: of a merge, the operator that has the value."""

    kind: Literal["merge", "prune"]
    operator: str
    reason: str
    into: str | None


class Workflow(BaseModel):
    """A stored workflow with its plan."""

    id: str
    object: Literal["workflow"]
    created_at: int
    name: str
    model: str | None
    inputs: dict[str, str]
    outputs: dict[str, str]
    operators: list[Operator]
    rewrites: list[Rewrite]


class WorkflowList(BaseModel):
    """A page of workflows, the newest first."""

    object: Literal["list"]
    data: list[Workflow]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedWorkflow(BaseModel):
    """A workflow that was deleted."""

    id: str
    object: Literal["workflow"]
    deleted: bool


class RowCounts(BaseModel):
    """Numbers of rows. total: None until the input is read."""

    total: int | None
    completed: int
    failed: int


class RunUsage(BaseModel):
    """Tokens of all calls."""

    total_tokens: int


class RunFailure(BaseModel):
    """Why a run has ended early."""

    code: str
    message: str


class OperatorFigures(BaseModel):
    """Executions of an operator since the last start of the gateway, and the tokens of its
    calls.
    """

    done: int
    failed: int
    calls: int
    merged: int
    cached: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


class Run(BaseModel):
    """A run."""

    id: str
    object: Literal["workflow.run"]
    workflow_id: str
    status: Literal[
        "queued", "in_progress", "cancelling", "completed", "cancelled", "stopped", "failed"
    ]
    created_at: int
    started_at: int | None
    ended_at: int | None
    model: str | None
    input_file_id: str | None
    output_file_id: str | None
    max_errors: int | None
    budget_tokens: int | None
    batch_ms: int
    row_counts: RowCounts
    usage: RunUsage
    operators: dict[str, OperatorFigures]
    error: RunFailure | None


class RunList(BaseModel):
    """A page of runs, the newest first."""

    object: Literal["list"]
    data: list[Run]
    first_id: str | None
    last_id: str | None
    has_more: bool
