"""The results of a batch: one line per request, in OpenAI's or Anthropic's form.

A file of results is also the batch's journal: a request with a line has been served. A line is
written at once, in one call of the operating system, so a killed process loses no finished request.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from weft_gateway.engine.shapes import usage_of
from weft_gateway.errors import ApiError
from weft_gateway.runs.records import NO_TOKENS, Api, Batch, Tokens

EXPIRED: Final = "batch_expired"
CANCELLED: Final = "batch_cancelled"
_UNSENT: Final = {
    EXPIRED: "This request could not be executed before the completion window expired.",
    CANCELLED: "This request was not executed because the batch was cancelled.",
}
_ANTHROPIC_UNSENT: Final = {EXPIRED: "expired", CANCELLED: "canceled"}
_NOT_JSON: Final = ApiError(502, "replica_bad_answer", "The replica's answer is not JSON.")


class Answer(NamedTuple):
    """The answer to one call. request_id: of its receipt. tokens: once it is `checked`."""

    status: int
    body: bytes
    request_id: str = ""
    tokens: Tokens = NO_TOKENS

    @property
    def good(self) -> bool:
        """Whether the request succeeded."""
        return self.status < 400


def checked(api: Api, answer: Answer) -> Answer:
    """Return an answer whose body is JSON without line ends, so that it fits into a line, with its
    tokens.
    """
    body = answer.body
    try:
        read = orjson.loads(body)
    except orjson.JSONDecodeError:
        error = _NOT_JSON.body(api.value, answer.request_id.encode())
        return answer._replace(status=_NOT_JSON.status, body=error)
    answer = answer._replace(tokens=tokens_of(read))
    return answer._replace(body=orjson.dumps(read)) if b"\n" in body else answer


def tokens_of(answer: object) -> Tokens:
    """Return the tokens of a parsed answer: a completion, an embedding or a response. Values that
    are no counts are 0.
    """
    usage = usage_of(answer.get("usage") if isinstance(answer, dict) else None)
    return NO_TOKENS if usage is None else Tokens(*usage)


def usage_json(tokens: Tokens) -> dict[str, object]:
    """Return tokens in OpenAI's format."""
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }


def line_id(batch_id: str, request: int) -> str:
    """Return the id of the line of a request, which is unique over all batches."""
    return f"{batch_id.rpartition('_')[2]}{request:06x}"


def result_line(api: Api, custom_id: str, its_id: str, answer: Answer) -> bytes:
    """Return the line of a served request. its_id: see `line_id`. answer: `checked`."""
    name = orjson.dumps(custom_id)
    if api is Api.ANTHROPIC:
        kind = (b"succeeded", b"message") if answer.good else (b"errored", b"error")
        return b'{"custom_id":%b,"result":{"type":"%b","%b":%b}}\n' % (name, *kind, answer.body)
    return (
        b'{"id":"batch_req_%b","custom_id":%b,"response":{"status_code":%d,"request_id":%b,'
        b'"body":%b},"error":null}\n'
        % (its_id.encode(), name, answer.status, orjson.dumps(answer.request_id), answer.body)
    )


def unsent_line(api: Api, custom_id: str, its_id: str, code: str) -> bytes:
    """Return the line of a request that was not sent. code: EXPIRED or CANCELLED."""
    if api is Api.ANTHROPIC:
        result = {"type": _ANTHROPIC_UNSENT[code]}
        return orjson.dumps({"custom_id": custom_id, "result": result}) + b"\n"
    error = {"code": code, "message": _UNSENT[code]}
    line = {"id": f"batch_req_{its_id}", "custom_id": custom_id, "response": None, "error": error}
    return orjson.dumps(line) + b"\n"


class Kind(Enum):
    """The outcome of a request."""

    GOOD = 1
    FAILED = 2
    UNSENT = 3


def kind_of(api: Api, custom_id: str, line: bytes) -> Kind:
    """Return what a line of results says. custom_id: of this line."""
    name = orjson.dumps(custom_id)
    _, _, rest = line.partition(b'"custom_id":%b,' % name)
    if api is Api.ANTHROPIC:
        kind = rest.removeprefix(b'"result":{"type":"').partition(b'"')[0]
        return {b"succeeded": Kind.GOOD, b"errored": Kind.FAILED}.get(kind, Kind.UNSENT)
    status = rest.removeprefix(b'"response":{"status_code":')[:3]
    if not status.isdigit():
        return Kind.UNSENT
    return Kind.GOOD if int(status) < 400 else Kind.FAILED


@dataclass(slots=True)
class Results:
    """The open files of a batch: output for good answers, errors for others. Anthropic has one file
    for both.
    """

    output: int
    errors: int

    @classmethod
    def open(cls, output: Path, errors: Path | None) -> Results:
        """Open the files to append to them. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        first = os.open(output, flags, 0o600)
        try:
            return cls(first, first if errors is None else os.open(errors, flags, 0o600))
        except OSError:
            os.close(first)
            raise

    def write(self, line: bytes, *, good: bool) -> None:
        """Append a line. Raises OSError; a part of the line may then be there."""
        descriptor = self.output if good else self.errors
        size = os.fstat(descriptor).st_size
        written = 0
        try:
            while written < len(line):
                written += os.write(descriptor, line[written:] if written else line)
        except OSError:
            os.ftruncate(descriptor, size)
            raise

    def sync(self) -> None:
        """Write all lines to the disk. Takes long; raises OSError."""
        for descriptor in {self.output, self.errors}:
            os.fsync(descriptor)

    def close(self) -> None:
        """Close the files."""
        for descriptor in {self.output, self.errors}:
            os.close(descriptor)


def openai_batch(batch: Batch) -> dict[str, object]:
    """Return a batch as OpenAI's API shows it."""
    errors = [
        {"code": one.code, "line": one.line, "message": one.message, "param": one.param}
        for one in batch.errors
    ]
    output, error = batch.output_file, batch.error_file
    times = batch.times
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model or None,
        "errors": {"object": "list", "data": errors} if errors else None,
        "input_file_id": batch.input_file,
        "completion_window": batch.window,
        "status": batch.status.value,
        "output_file_id": output if output in batch.results else None,
        "error_file_id": error if error in batch.results else None,
        "created_at": batch.created_s,
        "in_progress_at": times.get("in_progress"),
        "expires_at": batch.expires_s,
        "finalizing_at": times.get("finalizing"),
        "completed_at": times.get("completed"),
        "failed_at": times.get("failed"),
        "expired_at": times.get("expired"),
        "cancelling_at": times.get("cancelling"),
        "cancelled_at": times.get("cancelled"),
        "request_counts": {
            "total": batch.total,
            "completed": batch.completed,
            "failed": batch.failed + batch.unsent,
        },
        "usage": usage_json(batch.usage),
        "metadata": batch.metadata,
    }


def anthropic_batch(batch: Batch, base: str = "") -> dict[str, object]:
    """Return a batch as Anthropic's API shows it. Counts other than `processing` begin with the end
    of the batch. base: the URL of the gateway for the client, "" if it is unknown.
    """
    times, ended = batch.times, batch.ended
    expired = batch.status.value == "expired"
    counts = {
        "processing": 0 if ended else batch.total,
        "succeeded": batch.completed if ended else 0,
        "errored": batch.failed if ended else 0,
        "canceled": batch.unsent if ended and not expired else 0,
        "expired": batch.unsent if ended and expired else 0,
    }
    end = next((times[n] for n in ("completed", "expired", "cancelled", "failed") if n in times), 0)
    cancelling = times.get("cancelling")
    progress = "canceling" if cancelling else "in_progress"
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "ended" if ended else progress,
        "request_counts": counts,
        "created_at": _date(batch.created_s),
        "ended_at": _date(end) if end else None,
        "expires_at": _date(batch.expires_s),
        "archived_at": None,
        "cancel_initiated_at": _date(cancelling) if cancelling else None,
        "results_url": f"{base}/v1/messages/batches/{batch.id}/results" if ended else None,
    }


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
