"""Reads the input of a batch: checks every line, and indexes it without holding any body.

The index has about 40 bytes per request. A line is read again when it is sent.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from weft_gateway.calls.turns import Turns
from weft_gateway.engine.registry import Registry
from weft_gateway.runs.batch_lines import (
    Line,
    WrongLine,
    id_digest,
    order_key,
    read_line,
    same_answer_key,
)
from weft_gateway.runs.records import Api, Batch, LineError

MAX_LINES: Final = 50_000
# Reported errors of an input. Later ones have the same causes in most files.
MAX_ERRORS: Final = 100
# Lines with blank ones: each costs a little time, and a file could consist of line ends.
MAX_LINE_ENDS: Final = 2_000_000
# Bytes read in one turn.
_READ_BYTES: Final = 1 << 15
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(slots=True)
class Index:
    """The requests of a batch, numbered from 0 in the order of the file.

    offsets, sizes: their lines in the file, bytes. order: the requests to send: those of a model
    are neighbours, and among them those with common prompts. counts: requests of the order by
    model, in the order; "" is the model of requests that name none. copies: the requests that get
    the answer of another one. model: of all requests, "" if they name several.
    """

    offsets: array[int] = field(default_factory=lambda: array("Q"))
    sizes: array[int] = field(default_factory=lambda: array("I"))
    order: array[int] = field(default_factory=lambda: array("I"))
    counts: dict[str, int] = field(default_factory=dict)
    copies: dict[int, list[int]] = field(default_factory=dict)
    model: str = ""

    def __len__(self) -> int:
        return len(self.offsets)


class InputError(Exception):
    """The input fails the batch."""

    def __init__(self, found: list[LineError]) -> None:
        super().__init__(found[0].message)
        self.found = found


@dataclass(slots=True, eq=False)
class InputReader:
    """Reads the inputs of batches. turns: for work that blocks the event loop. registry: knows the
    models. max_line: longest line in bytes; such a body can be parsed within one turn.
    """

    turns: Turns
    registry: Registry
    max_line: int

    async def index(self, path: Path, batch: Batch, done: frozenset[bytes] | None = None) -> Index:
        """Index the input. done: digests of the custom ids that have a result already; None for a
        new batch, whose lines are checked. Raises InputError and OSError.
        """
        checking = _Checking(batch.api, self.registry, done)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            async for number, offset, raw in self._lines(descriptor, batch.tenant):
                if raw is None:
                    what = f"A line has at most {self.max_line} bytes."
                    checking.fail(LineError("line_too_long", what, number))
                else:
                    checking.take(number, offset, raw, batch.endpoint)
                if checking.full:
                    break
        finally:
            os.close(descriptor)
        return checking.result()

    async def _lines(
        self, descriptor: int, tenant: str
    ) -> AsyncIterator[tuple[int, int, bytes | None]]:
        """Yield number, offset and bytes of the lines that are not blank; None: it is too long."""
        number, at, rest, too_long = 0, 0, b"", False
        # Long lines are read in growing pieces, because each piece copies the bytes before it.
        while data := os.pread(descriptor, max(_READ_BYTES, len(rest)), at + len(rest)):
            await self.turns.take(tenant, len(data))
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                number += 1
                offset, at = at, at + len(line) + 1
                if too_long or len(line) > self.max_line:
                    too_long = False
                    yield number, offset, None
                elif line and not line.isspace():
                    yield number, *_without_mark(offset, line)
            if number > MAX_LINE_ENDS:
                what = f"The input has more than {MAX_LINE_ENDS} lines."
                raise InputError([LineError("too_many_lines", what)])
            if len(rest) > self.max_line:
                # The bytes are dropped. The next line end shows where the line stops.
                at += len(rest)
                rest, too_long = b"", True
        if too_long:
            yield number + 1, at, None
        elif rest and not rest.isspace():
            yield number + 1, *_without_mark(at, rest)


def _without_mark(offset: int, line: bytes) -> tuple[int, bytes]:
    """Return a line and its offset without a byte order mark at the beginning of the file."""
    if offset or not line.startswith(_BYTE_ORDER_MARK):
        return offset, line
    return len(_BYTE_ORDER_MARK), line[len(_BYTE_ORDER_MARK) :]


class _Checking:
    """The state of one reading."""

    def __init__(self, api: Api, registry: Registry, done: frozenset[bytes] | None) -> None:
        self._api = api
        self._registry = registry
        self._done = done
        self._index = Index()
        self._errors: list[LineError] = []
        self._ids: set[bytes] = set()
        self._keys: list[tuple[str, bytes, int]] = []
        self._first: dict[bytes, int] = {}
        # Equal names share one object.
        self._models: dict[str, str] = {}

    @property
    def full(self) -> bool:
        """Whether no further line changes the result."""
        return len(self._index) > MAX_LINES or len(self._errors) >= MAX_ERRORS

    def fail(self, error: LineError) -> None:
        if len(self._errors) < MAX_ERRORS:
            self._errors.append(error)

    def take(self, number: int, offset: int, raw: bytes, endpoint: str) -> None:
        """Check a line, and add it to the index. number: from 1."""
        try:
            line = read_line(raw, self._api, endpoint)
            digest = id_digest(line.custom_id)
            if digest in self._ids:
                what = f"The custom_id {line.custom_id[:64]!r} is used by an earlier line."
                raise WrongLine("duplicate_custom_id", what, "custom_id")
            self._ids.add(digest)
            model = self._model_of(line)
        except WrongLine as error:
            self.fail(error.at(number))
            return
        index, at = self._index, len(self._index)
        index.offsets.append(offset)
        index.sizes.append(len(raw))
        if self._done is not None and digest in self._done:
            return
        same = same_answer_key(line.read, endpoint)
        first = self._first.setdefault(same, at) if same else at
        if first == at:
            self._keys.append((model, order_key(line.read), at))
        else:
            index.copies.setdefault(first, []).append(at)

    def _model_of(self, line: Line) -> str:
        """Return the model of a line, "" if it names none. Raises WrongLine."""
        first = next(iter(self._models), None)
        model = self._registry.resolved(line.read.get("model") or "")
        model = self._models.setdefault(model, model)
        if self._api is Api.ANTHROPIC or self._done is not None:
            return model
        if first is None and model and (what := self._registry.unknown(model)):
            raise WrongLine("model_not_found", f"The model {what}", "body.model")
        if first is not None and model != first:
            what = (
                f"The model {model[:256]!r} differs from {first[:256]!r} in the first line: "
                "all requests of a batch use one model."
            )
            raise WrongLine("mismatched_model", what, "body.model")
        return model

    def result(self) -> Index:
        """Return the index. Raises InputError."""
        index, errors = self._index, self._errors
        if len(index) > MAX_LINES:
            errors = [
                LineError("too_many_tasks", f"A batch has at most {MAX_LINES} requests."),
                *errors,
            ]
        elif not len(index) and not errors:
            errors = [LineError("empty_file", "The input has no requests.")]
        if errors:
            raise InputError(errors)
        self._keys.sort()
        index.order = array("I", [at for _, _, at in self._keys])
        index.counts = dict(Counter(model for model, _, _ in self._keys))
        index.model = next(iter(self._models)) if len(self._models) == 1 else ""
        return index


def read_results(path: Path) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Yield custom id, bytes and members of each complete result. Cuts the file after the last one:
    a stop of the process or of the machine may have interrupted the next.
    """
    good = 0
    with path.open("r+b") as file:
        for line in file:
            read = None
            with suppress(orjson.JSONDecodeError):
                read = orjson.loads(line) if line.endswith(b"\n") else None
            if not isinstance(read, dict) or not isinstance(read.get("custom_id"), str):
                break
            good += len(line)
            yield read["custom_id"], line, read
        file.truncate(good)
