"""Workloads as files: JSON lines, plain or .xz, written and read without loss.

The first line is a header: `{"weft_workload": 1, "name": ...}` with the format's version and the
options that made the workload. Each other line is a program: `id`, `arrival_s` and its `calls`,
without default values. Contexts grow, so a call gives the number of leading items (`keep`) of its
messages, ids, parts, tags and tools that equal those of the call before it, and lists the others
only.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from weft_bench.workloads.schema import TAGS, Part, TraceCall, TraceError, TraceProgram

VERSION: Final = 1
MARK: Final = "weft_workload"
_GROWING: Final = ("messages", "tools", "prompt_ids", "tags", "parts")
_DEFAULTS: Final = {
    field.name: field.default for field in fields(TraceCall) if field.default is not MISSING
}


def write(
    path: Path,
    name: str,
    programs: Iterable[TraceProgram],
    made_of: Mapping[str, Any] | None = None,
) -> int:
    """Write a workload. Returns the number of programs.

    made_of: options, stored in the header. Raises TraceError for values that JSON cannot represent,
    and if the file cannot be written.
    """
    count = 0
    # An incomplete file must not pass for a shorter workload.
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with lzma.open(part, "wt") if path.suffix == ".xz" else part.open("w") as opened:
            print(_line({MARK: VERSION, "name": name, "made_of": dict(made_of or {})}), file=opened)
            for program in programs:
                count += 1
                print(_line(_program_record(program)), file=opened)
        part.replace(path)
    except OSError as error:
        raise TraceError(f"{path} cannot be written: {error}") from None
    except (TypeError, ValueError) as error:
        raise TraceError(f"{path}, program {count}: {error}") from None
    finally:
        with suppress(OSError):
            part.unlink()
    return count


def matches(record: Mapping[str, Any]) -> bool:
    """Return whether a file's first record is a workload's header."""
    return MARK in record


def name_of(header: Mapping[str, Any]) -> str:
    """Return the workload's name. Raises ValueError for an unknown version."""
    if header[MARK] != VERSION:
        raise ValueError(f"format version {header[MARK]} is unknown, expected {VERSION}")
    return str(header.get("name", ""))


def read(records: Iterable[Mapping[str, Any]]) -> Iterator[TraceProgram]:
    """Yield the programs in the order of the file. `records` excludes the header.

    Raises ValueError at an invalid record.
    """
    for record in records:
        yield program_of(record)


Whole = Annotated[int, msgspec.Meta(ge=0)]
Number = Annotated[float, msgspec.Meta(ge=0)]


class _Keep(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Numbers of leading items that equal those of the call before."""

    messages: Whole = 0
    tools: Whole = 0
    prompt_ids: Whole = 0
    tags: Whole = 0
    parts: Whole = 0


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    keep: _Keep = _Keep()
    messages: tuple[dict[str, Any], ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    prompt_ids: tuple[Whole, ...] = ()
    tags: tuple[tuple[Whole, Literal[tuple(TAGS)]], ...] = ()  # type: ignore[valid-type]
    parts: tuple[tuple[str, Whole, str], ...] = ()
    output_bytes: Whole = 0
    output_tokens: Whole = 0
    gap_s: Number = 0.0
    after: tuple[Whole, ...] | None = None
    answer: str = ""
    tool_s: tuple[Number, ...] = ()


class _Program(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    calls: tuple[_Call, ...]
    arrival_s: Number | None = None


def program_of(record: Any) -> TraceProgram:
    """Return one program. Raises ValueError."""
    try:
        program = msgspec.convert(record, _Program)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    calls: list[TraceCall] = []
    for number, call in enumerate(program.calls):
        values = msgspec.structs.asdict(call)
        values["parts"] = tuple(Part(*part) for part in call.parts)
        del values["keep"]
        before = calls[-1] if calls else TraceCall()
        for name in _GROWING:
            had, kept = getattr(before, name), getattr(call.keep, name)
            if kept > len(had):
                where = f"call {number} of {program.id}"
                raise ValueError(f"{where} keeps {kept} of {len(had)} {name}")
            values[name] = (*had[:kept], *values[name])
        calls.append(TraceCall(**values))
    return TraceProgram(program.id, tuple(calls), program.arrival_s)


def _program_record(program: TraceProgram) -> dict[str, Any]:
    record: dict[str, Any] = {"id": program.id}
    if program.arrival_s is not None:
        record["arrival_s"] = program.arrival_s
    before = TraceCall()
    record["calls"] = []
    for call in program.calls:
        record["calls"].append(_call_record(call, before))
        before = call
    return record


def _call_record(call: TraceCall, before: TraceCall) -> dict[str, Any]:
    record: dict[str, Any] = {}
    keep = {}
    for name, default in _DEFAULTS.items():
        value = getattr(call, name)
        if name in _GROWING:
            kept = _shared(getattr(before, name), value)
            if kept:
                keep[name] = kept
            value = value[kept:]
        if value != default:
            record[name] = [_plain(item) for item in value] if name in _GROWING else value
    return {"keep": keep, **record} if keep else record


def _shared(before: Sequence[Any], now: Sequence[Any]) -> int:
    """Return the number of identical leading items. 1, 1.0 and True are not identical."""
    count = 0
    for mine, theirs in zip(before, now, strict=False):
        if mine is not theirs and (mine != theirs or _line(mine) != _line(theirs)):
            break
        count += 1
    return count


def _plain(item: Any) -> Any:
    if isinstance(item, Part):
        return [item.name, item.tokens, item.kind]
    if isinstance(item, dict) and json.loads(_line(item)) != item:
        raise ValueError(f"JSON cannot represent {item!r:.80}")
    return item


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=_plain, allow_nan=False)
