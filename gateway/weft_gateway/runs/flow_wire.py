"""The messages between the gateway and a process of runs (`weft_gateway.runs.flow_worker`).

Each message is one frame: its length in 4 bytes, then MessagePack.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from weft_gateway.runs.flow_rules import Rules

LENGTH: Final = 4
WORKFLOW: Final = "workflow.yaml"
INPUT: Final = "input.jsonl"
OUTPUT: Final = "output.jsonl"
JOURNAL: Final = "output.jsonl.journal"


class Check(msgspec.Struct, tag=True):
    """Check a workflow. file: its name in messages. Answered by `Checked` or `Wrong`."""

    text: str
    file: str
    rules: Rules


class Start(msgspec.Struct, tag=True):
    """Begin or continue a run, also beside others in one process. run: its id. file, input: names
    of the workflow and of the rows in messages. model: of operators without one. calls: that may
    wait and be in flight. tokens, errors: the budget. most_rows: of the input. most_bytes: of the
    body of a call. storage: bytes that the journal and the output may have. finish: make no more
    calls, and write the rows that have ended.
    """

    run: str
    folder: str
    file: str
    input: str
    rules: Rules
    model: str
    calls: int
    tokens: int | None
    errors: int | None
    most_rows: int
    most_bytes: int
    storage: int
    finish: bool


class CallEnded(msgspec.Struct, tag=True):
    """The answer to `Ask`. code: "" if `body` is an answer of an engine, else of the failure."""

    number: int
    body: bytes = b""
    code: str = ""
    message: str = ""
    attempts: int = 1


class Cancel(msgspec.Struct, tag=True):
    """Cancel a run, and write the rows that have ended."""

    run: str


class Ready(msgspec.Struct, tag=True):
    """The process has started; also a sign of life of one without runs."""


class Checked(msgspec.Struct, tag=True):
    """The workflow is valid. plan: its explanation. models: name, operator and line of each model
    that an operator names, "" for operators without one. calls: LLM operators.
    """

    plan: dict[str, Any]
    inputs: dict[str, str]
    models: list[tuple[str, str, int]]
    calls: int
    needs_model: bool


class Wrong(msgspec.Struct, tag=True):
    """The workflow or the run cannot be used. message: one line per error. run: "" for the check of
    a workflow. errno: of an error of the disk, 0 for none.
    """

    code: str
    message: str
    run: str = ""
    errno: int = 0


class InputRead(msgspec.Struct, tag=True):
    """The input is read. rows: of the input."""

    run: str
    rows: int


class Ask(msgspec.Struct, tag=True):
    """Make a call. number, row: unique in the process. attempts: that may be made. body: of Chat
    Completions. group: a number that rows with the same beginning share, 0 for none.
    """

    number: int
    row: int
    model: str
    attempts: int
    body: bytes
    group: int = 0


class Drop(msgspec.Struct, tag=True):
    """No operator needs this call any more."""

    number: int


class Progress(msgspec.Struct, tag=True):
    """The figures of a run, sent several times per second; also a sign of life. ends: rows that
    have ended since the last one, twice the number, plus 1 if the row has failed. operators:
    figures by operator.
    """

    run: str
    ends: list[int]
    rows: int
    failed: int
    tokens: int
    operators: dict[str, dict[str, int]]


class Over(msgspec.Struct, tag=True):
    """A run has ended, and its output is written. reason: see `commands.Finish`, and "storage" if
    the results have reached their limit.
    """

    run: str
    reason: str


ToWorker = Check | Start | CallEnded | Cancel
FromWorker = Ready | Checked | Wrong | InputRead | Ask | Drop | Progress | Over

_encode: Final = msgspec.msgpack.Encoder().encode
to_worker: Final = msgspec.msgpack.Decoder(ToWorker).decode
from_worker: Final = msgspec.msgpack.Decoder(FromWorker).decode


def frame(message: ToWorker | FromWorker) -> bytes:
    """Return the frame of a message."""
    raw = _encode(message)
    return len(raw).to_bytes(LENGTH, "big") + raw
