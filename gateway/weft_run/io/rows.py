"""The rows of a run: JSON Lines and Parquet, in and out. Memory does not grow with the file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from weft_run.installing import command

_JSONL: Final = (".jsonl", ".ndjson")
_PARQUET: Final = ".parquet"
_BATCH: Final = 1024
_PIECE_BYTES: Final = 1 << 20
# Values of templates, tools and journals are walked recursively.
MOST_DEPTH: Final = 100
_DEEP: Final = "the values are nested too deeply"
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKETS: Final = re.compile(rb"[\[\]{}]")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_DIGITS: Final = 20
_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 64) - 1
_LONG: Final = re.compile(rb"[0-9]{19}")
_LARGE: Final = "has an integer of more than 64 bits; write it as a text"
# Errors of one file that are reported.
_MOST_ERRORS: Final = 20
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "str": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": dict,
}  # fmt: skip


class RowsError(ValueError):
    """The input or output cannot be used. One line per error: file, line and reason."""


class _Repeated(Exception):
    """An object has a key twice. The argument is the key."""


class _Large(Exception):
    """An integer has more than 64 bits. A parser would make a float of it."""


class Rows(NamedTuple):
    """The result of a scan of the input. number: of its rows. digest: of its bytes."""

    number: int
    digest: str


class Input:
    """The rows of a file. types: the type of each column that the workflow reads, by name: one of
    `str`, `int`, `float`, `bool`, `list`, `dict` and `any`. Other columns are ignored.
    """

    def __init__(self, path: Path, types: Mapping[str, str]) -> None:
        """Raises RowsError if the format is unknown or its library is not installed."""
        self._path = path
        self._types = dict(types)
        self._parquet = _is_parquet(path, "input")

    def scan(self) -> Rows:
        """Check every row before the first call. Raises RowsError with all errors, at most 20."""
        count, errors = 0, []
        try:
            for place, row in self._all(strict=True):
                count += 1
                what = row if isinstance(row, str) else self._fault(row)
                if what:
                    errors.append(f"{self._path}:{place}: {what}")
                    if len(errors) == _MOST_ERRORS:
                        break
        except OSError as error:
            raise RowsError(f"{self._path}: {error.strerror or error}") from None
        if errors:
            raise RowsError("\n".join(errors))
        return Rows(count, _digest(self._path))

    def check(self, found: Rows) -> None:
        """Raise RowsError if the file has changed since a scan."""
        try:
            same = _digest(self._path) == found.digest
        except OSError:
            same = False
        if not same:
            raise RowsError(
                f"{self._path}: has changed during the run; restore it and use --resume, or delete "
                "the journal to start again"
            )

    def columns(self) -> list[str]:
        """Return the columns of the first row, none without a valid one. Raises RowsError."""
        try:
            first = next(self._all(), ("", ""))[1]
        except OSError as error:
            raise RowsError(f"{self._path}: {error.strerror or error}") from None
        return [] if isinstance(first, str) else list(first)

    def read(self, start: int, stop: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (number, columns) of the rows from `start` to before `stop`. Numbers begin at 0."""
        for number, (_, row) in enumerate(self._all()):
            if number >= stop:
                return
            if number >= start and not isinstance(row, str):
                yield number, {name: self._value(name, row.get(name)) for name in self._types}

    def _all(self, *, strict: bool = False) -> Iterator[tuple[str, dict[str, Any] | str]]:
        """Yield the place of each row in the file, and the row or the reason why it is not one.
        Blank lines are no rows. strict: refuse what a parser changes or drops.
        """
        if self._parquet:
            for number, row in enumerate(_parquet_rows(self._path), 1):
                yield f"row {number}", row
            return
        with self._path.open("rb") as file:
            for number, line in enumerate(file, 1):
                # The line end is no part of the row: an error would be in line 2 of it.
                text = line.rstrip(b"\r\n")
                if number == 1:
                    text = text.removeprefix(_BYTE_ORDER_MARK)
                if text and not text.isspace():
                    yield str(number), self._row(text, strict)

    def _row(self, text: bytes, strict: bool) -> dict[str, Any] | str:
        try:
            row = orjson.loads(text)
            if strict:
                json.loads(text, object_pairs_hook=_unique, parse_int=str)
                if depth(text) > MOST_DEPTH:
                    return _DEEP
        except _Repeated as error:
            return f"the key {error.args[0]!r} appears twice"
        except RecursionError:
            return _DEEP
        except orjson.JSONDecodeError as error:
            return f"not valid JSON: {error.msg} at character {error.pos + 1}"
        if not isinstance(row, dict):
            return "a row must be a JSON object"
        if strict and _LONG.search(text):
            # Columns that the workflow does not read may have such values.
            raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            for name in self._types:
                if name in raw and _is_large(bytes(raw[name])):
                    return f"input {name!r} {_LARGE}"
        return row

    def _value(self, name: str, value: Any) -> Any:
        # Parquet files often contain lists and objects as JSON texts.
        if isinstance(value, str) and self._parquet and self._types[name] in ("list", "dict"):
            return orjson.loads(value)
        return value

    def _fault(self, row: dict[str, Any]) -> str:
        """Return why a row does not fit the workflow's inputs, "" if it does."""
        for name, kind in self._types.items():
            if name not in row:
                return f"input {name!r} is missing; the row has: {', '.join(row) or 'nothing'}"
            try:
                value = self._value(name, row[name])
            except orjson.JSONDecodeError:
                return f"input {name!r} must be of type {kind}; the text is not JSON"
            is_text = isinstance(row[name], str) and value is not row[name]
            if is_text and depth(row[name].encode()) > MOST_DEPTH:
                return _DEEP
            if value is not row[name] and _is_large(row[name]):
                return f"input {name!r} {_LARGE}"
            expected = _TYPES.get(kind)
            is_flag = isinstance(value, bool) and kind in ("int", "float")
            if expected is not None and (not isinstance(value, expected) or is_flag):
                return f"input {name!r} must be of type {kind}, is {_type_name(value)}"
            if self._parquet:
                try:
                    json.dumps(value)
                except TypeError as error:
                    return f"input {name!r} is not JSON: {error}; convert it to text or a number"
        return ""


def check_output(path: Path, input_: Path) -> None:
    """Raise RowsError if the output could not be written at the end of the run, or would replace
    the input.
    """
    _is_parquet(path, "output")
    if path.exists() and input_.exists() and path.samefile(input_):
        raise RowsError(f"{path}: is the input; choose another output")
    if not path.parent.is_dir():
        raise RowsError(f"{path}: the folder {path.parent} does not exist")
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file"
        raise RowsError(f"{path}: is {what}; choose another output")
    # A `Job` has the targets of other links.
    if path.is_symlink():
        raise RowsError(f"{path}: is a link that leads to itself")


def partial_of(path: Path) -> Path:
    """Return the file that becomes the output once it is complete."""
    return path.with_name(path.name + ".partial")


def write_output(path: Path, rows: Iterable[dict[str, Any]], outputs: Iterable[str]) -> None:
    """Write all rows in their order. The file appears complete or not at all. outputs: the
    workflow's outputs, which are the columns between `row` and `error`.
    """
    partial = partial_of(path)
    if _is_parquet(path, "output"):
        _write_parquet(partial, list(outputs), rows)
    else:
        with partial.open("wb") as file:
            for row in rows:
                file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
            file.flush()
            os.fsync(file.fileno())
    partial.replace(path)


def _is_parquet(path: Path, what: str) -> bool:
    suffix = path.suffix.lower()
    if suffix in _JSONL:
        return False
    if suffix != _PARQUET:
        raise RowsError(f"{path}: the {what} must be a .jsonl, .ndjson or .parquet file")
    try:
        import pyarrow.parquet  # noqa: F401
    except ModuleNotFoundError:
        raise RowsError(f"{path}: Parquet needs pyarrow: {command('parquet')}") from None
    return True


def depth(line: bytes) -> int:
    """Return how deeply the values of a JSON text are nested."""
    if line.count(b"[") + line.count(b"{") <= MOST_DEPTH:
        return 0
    deepest = level = 0
    for bracket in _BRACKETS.findall(_STRING.sub(b"", line)):
        level += 1 if bracket in b"[{" else -1
        deepest = max(deepest, level)
    return deepest


def _type_name(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _digest(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _unique(pairs: list[tuple[str, Any]]) -> None:
    """Raise _Repeated if an object has a key twice: a parser would drop one of the values."""
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise _Repeated(key)
        seen.add(key)


def _small(text: str) -> str:
    """Raise _Large for an integer that does not fit into 64 bits."""
    # Python converts no text of more than 4300 digits.
    if len(text) > _DIGITS or not _LEAST <= int(text) <= _MOST:
        raise _Large
    return text


def _is_large(value: bytes | str) -> bool:
    """Whether a JSON text contains an integer of more than 64 bits."""
    try:
        json.loads(value, parse_int=_small)
    except _Large:
        return True
    return False


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if repeated := sorted({name for name in names if names.count(name) > 1}):
                raise RowsError(f"{path}: the column {repeated[0]!r} appears twice")
            for batch in file.iter_batches(_BATCH):
                yield from batch.to_pylist()
    except pyarrow.ArrowException as error:
        raise RowsError(f"{path}: not a Parquet file: {error}") from None


def _write_parquet(path: Path, outputs: list[str], rows: Iterable[dict[str, Any]]) -> None:
    """Texts are a column of strings; columns with other values contain JSON texts, because the
    types of rows may differ.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    failure = pa.struct(
        [("op", pa.string()), ("code", pa.string()), ("message", pa.string()),
         ("attempts", pa.int64())]
    )  # fmt: skip
    schema = pa.schema(
        [("row", pa.int64()), *((name, pa.string()) for name in outputs), ("error", failure)]
    )
    with pq.ParquetWriter(path, schema) as writer:
        batch: list[dict[str, Any]] = []
        for row in rows:
            texts = {name: _text(row.get(name)) for name in outputs}
            batch.append({"row": row["row"], **texts, "error": row["error"]})
            if len(batch) == _BATCH:
                writer.write_table(pa.Table.from_pylist(batch, schema))
                batch = []
        writer.write_table(pa.Table.from_pylist(batch, schema))


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()
