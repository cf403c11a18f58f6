"""The bodies and answers of the routes for files and batches, in the formats of both APIs."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, Field

MAX_WINDOW_S: Final = 7 * 86_400
_WINDOW: Final = re.compile(r"([1-9][0-9]{0,6})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def window_s(text: str) -> int:
    """Return the seconds of a completion window such as `24h`. Raises ValueError."""
    found = _WINDOW.fullmatch(text)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not 0 < seconds <= MAX_WINDOW_S:
        raise ValueError(
            "must be a number with the unit s, m, h or d, at most 7 days, for example 24h"
        )
    return seconds


def _is_window(text: str) -> str:
    window_s(text)
    return text


_Key = Annotated[str, Field(max_length=64)]
_Value = Annotated[str, Field(max_length=512)]


class ExpiresAfter(BaseModel):
    """When a file is deleted."""

    anchor: Literal["created_at"] = Field(description="the creation of the file")
    seconds: int = Field(ge=3600, le=2_592_000)


class NewBatch(BaseModel):
    """A batch to create."""

    input_file_id: str = Field(description="id of a file with the purpose `batch`")
    endpoint: Literal[
        "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"
    ] = Field(description="the endpoint of all requests")
    completion_window: Annotated[str, AfterValidator(_is_window)] = Field(
        description="after this time, requests that were not executed expire: a number with the "
        "unit s, m, h or d, at most 7 days; OpenAI knows only 24h"
    )
    metadata: Annotated[dict[_Key, _Value], Field(max_length=16)] | None = Field(
        None, description="at most 16 pairs, shown with the batch"
    )
    output_expires_after: ExpiresAfter | None = Field(
        None, description="when the files with results are deleted, if sooner than other files"
    )


class File(BaseModel):
    """A stored file."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"]


class FileList(BaseModel):
    """A page of files."""

    object: Literal["list"]
    data: list[File]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedFile(BaseModel):
    """A file that was deleted."""

    id: str
    object: Literal["file"]
    deleted: bool


class BatchError(BaseModel):
    """An error of the input. line: from 1."""

    code: str
    line: int | None
    message: str
    param: str | None


class BatchErrors(BaseModel):
    """The errors of the input."""

    object: Literal["list"]
    data: list[BatchError]


class RequestCounts(BaseModel):
    """Numbers of requests."""

    total: int
    completed: int
    failed: int


class InputTokensDetails(BaseModel):
    """A part of the input tokens."""

    cached_tokens: int = Field(description="tokens that the engine found in its KV cache")


class OutputTokensDetails(BaseModel):
    """A part of the output tokens."""

    reasoning_tokens: int


class BatchUsage(BaseModel):
    """The sum of the usage of all lines of the output."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class Batch(BaseModel):
    """A batch."""

    id: str
    object: Literal["batch"]
    endpoint: str
    model: str | None
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: str
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    usage: BatchUsage
    metadata: dict[str, str] | None


class BatchList(BaseModel):
    """A page of batches, the newest first."""

    object: Literal["list"]
    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool


class MessageCounts(BaseModel):
    """Numbers of requests."""

    processing: int
    succeeded: int
    errored: int
    canceled: int
    expired: int


class MessageBatch(BaseModel):
    """A batch of messages."""

    id: str
    type: Literal["message_batch"]
    processing_status: Literal["in_progress", "canceling", "ended"]
    request_counts: MessageCounts
    created_at: str
    ended_at: str | None
    expires_at: str
    archived_at: str | None
    cancel_initiated_at: str | None
    results_url: str | None


class MessageBatchList(BaseModel):
    """A page of batches of messages, the newest first."""

    data: list[MessageBatch]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedMessageBatch(BaseModel):
    """A batch of messages that was deleted."""

    id: str
    type: Literal["message_batch_deleted"]
