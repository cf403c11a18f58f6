"""The records of files, batches and runs."""

from __future__ import annotations

import re
import secrets
import time
from enum import StrEnum
from typing import Final

import msgspec

# Ids that this module generates, which are safe as names of files.
_ID: Final = re.compile(r"(?:file-|batch_|msgbatch_|run_)[0-9a-f]{24}")


class Api(StrEnum):
    """The API that created a batch."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class Status(StrEnum):
    """The states of batches, as OpenAI names them, and of runs. STOPPED: the budget of a run is
    spent, or the storage is full.
    """

    QUEUED = "queued"
    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    STOPPED = "stopped"
    FAILED = "failed"


_ENDED: Final = frozenset(
    {Status.COMPLETED, Status.CANCELLED, Status.EXPIRED, Status.STOPPED, Status.FAILED}
)


class StoredFile(msgspec.Struct, frozen=True):
    """A file. bytes: its size. created_s, expires_s: Unix time. hidden: no route shows it."""

    id: str
    tenant: str
    name: str
    purpose: str
    bytes: int
    created_s: int
    expires_s: int
    hidden: bool = False


class LineError(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error of the input. line: from 1; None if it concerns the whole file."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class Tokens(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of answers. cached: the part of `input` that the engine found in its KV cache.
    reasoning: the part of `output` that is reasoning, if the engine reports it.
    """

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.input + other.input,
            self.cached + other.cached,
            self.output + other.output,
            self.reasoning + other.reasoning,
        )


NO_TOKENS: Final = Tokens()


class StoredJob(msgspec.Struct):
    """What a batch and a run have in common. times: Unix time by state."""

    id: str
    tenant: str
    created_s: int
    status: Status = Status.QUEUED
    times: dict[str, int] = {}

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.status in _ENDED

    @property
    def cancelling(self) -> bool:
        """Whether it was cancelled, and has not ended."""
        return self.status is Status.CANCELLING

    def enter(self, status: Status) -> None:
        """Change the state now."""
        self.status = status
        self.times = {**self.times, status.value: int(time.time())}


class Batch(StoredJob, kw_only=True):
    """A batch. window: as its client wrote it. total, completed, failed: numbers of requests.
    usage: the tokens of the completed ones. unsent: requests that were not sent, because the batch
    was cancelled or has expired. output_file, error_file: ids of the results, reserved when the
    batch begins. results: those of them that exist, once the batch has ended. keep_s: the lifetime
    of the results, as the client wrote it, 0 for the longest one.
    """

    api: Api
    endpoint: str
    input_file: str
    window: str
    expires_s: int
    metadata: dict[str, str] | None = None
    model: str = ""
    errors: list[LineError] = []
    total: int = 0
    completed: int = 0
    failed: int = 0
    unsent: int = 0
    usage: Tokens = NO_TOKENS
    output_file: str = ""
    error_file: str = ""
    results: list[str] = []
    keep_s: int = 0


class RunError(msgspec.Struct, frozen=True):
    """Why a run has ended early."""

    code: str
    message: str


class Run(StoredJob, kw_only=True):
    """A run. digest: of its workflow. input_file: id of an uploaded file. input_name: the name of
    the rows in messages. budget_tokens, max_errors: None for no limit. batch_ms: how long it waits
    for runs that share its process. rows, completed, failed: numbers of rows; `rows` is None until
    the input is read. tokens: of prompts and answers. output_file: id of the result, once the run
    has ended and has one. group: the run whose folder has the journal, once a process has begun.
    first: its first row in the input of the process.
    """

    digest: str
    input_file: str = ""
    input_name: str = "rows"
    budget_tokens: int | None = None
    max_errors: int | None = None
    batch_ms: int = 0
    rows: int | None = None
    completed: int = 0
    failed: int = 0
    tokens: int = 0
    error: RunError | None = None
    output_file: str = ""
    group: str = ""
    first: int = 0


def new_id(kind: str) -> str:
    """Return an id that cannot be guessed. kind: `file-`, `batch_`, `msgbatch_` or `run_`."""
    return f"{kind}{secrets.token_hex(12)}"


def is_id(text: str) -> bool:
    """Whether a client's text has the form of an id."""
    return _ID.fullmatch(text) is not None
