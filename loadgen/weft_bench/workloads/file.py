"""Workloads as files: JSON lines, plain or .xz, written and read back without loss.

The first line is a header: `{"weft_workload": 1, "name": ...}` with the format's version and what
the workload was made of. Each other line is a program: `id`, `arrival_s` and its `calls`; what has
its default is left out. Contexts grow, so a call says how many leading items (`keep`) of its
messages, ids, parts, tags and tools are those of the call before it, and lists the others only.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from math import isfinite
from pathlib import Path
from typing import Any, Final

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
    """Write a workload; returns how many programs. made_of: options, kept in the header.

    Raises TraceError for a program that holds what JSON does not, and where the file cannot be
    written.
    """
    count = 0
    # A file that was begun and not ended must not be taken for a shorter workload.
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
    """Whether a file's first record is a workload's header."""
    return MARK in record


def name_of(header: Mapping[str, Any]) -> str:
    """The workload's name. Raises ValueError for a version that is not known."""
    if header[MARK] != VERSION:
        raise ValueError(f"version {header[MARK]} of the format is not known, {VERSION} is")
    return str(header.get("name", ""))


def read(records: Iterable[Mapping[str, Any]]) -> Iterator[TraceProgram]:
    """The programs, in the order of the file; `records` without the header.

    Raises ValueError with what is wrong when a broken record is met.
    """
    for record in records:
        yield program_of(record)


def program_of(record: Any) -> TraceProgram:
    """One program. Raises ValueError."""
    _only(record, ("id", "arrival_s", "calls"), "a program")
    if not isinstance(record.get("id"), str) or not isinstance(record.get("calls"), list):
        raise ValueError("a program has an id and a list of calls")
    calls: list[TraceCall] = []
    for number, call in enumerate(record["calls"]):
        try:
            calls.append(_call(call, calls[-1] if calls else TraceCall()))
        except (TypeError, ValueError) as error:
            raise ValueError(f"call {number} of {record['id']}: {error}") from None
    arrival = record.get("arrival_s")
    return TraceProgram(
        record["id"], tuple(calls), None if arrival is None else _number(arrival, "arrival_s")
    )


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
    """How many leading items are the same, not merely equal: 1, 1.0 and True are three things."""
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
        raise ValueError(f"JSON does not hold {item!r:.80}")
    return item


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=_plain, allow_nan=False)


def _call(record: Any, before: TraceCall) -> TraceCall:
    _only(record, ("keep", *_DEFAULTS), "a call")
    keep = record.get("keep", {})
    _only(keep, _GROWING, "what is kept")
    values: dict[str, Any] = {}
    for name in _GROWING:
        had = getattr(before, name)
        kept, new = keep.get(name, 0), record.get(name, [])
        if type(kept) is not int or not 0 <= kept <= len(had):
            raise ValueError(f"keeps {kept} of {len(had)} {name}")
        if not isinstance(new, list):
            raise ValueError(f"{name} is no list")
        values[name] = (*had[:kept], *(_ITEMS[name](item) for item in new))
    for name in ("output_bytes", "output_tokens"):
        values[name] = _whole(record.get(name, 0), name)
    values["gap_s"] = _number(record.get("gap_s", 0.0), "gap_s")
    values["answer"] = record.get("answer", "")
    if not isinstance(values["answer"], str):
        raise ValueError("answer is no name")
    after = record.get("after")
    values["after"] = None if after is None else tuple(_whole(n, "after") for n in after)
    values["tool_s"] = tuple(_number(n, "tool_s") for n in record.get("tool_s", []))
    return TraceCall(**values)


def _only(record: Any, known: Sequence[str], what: str) -> None:
    if not isinstance(record, dict):
        raise ValueError(f"{what} is no object")
    if unknown := [name for name in record if name not in known]:
        raise ValueError(f"{what} has no {unknown[0]}")


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is no whole number from 0: {value!r}")
    return value


def _number(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not isfinite(value) or value < 0:
        raise ValueError(f"{name} is no number from 0: {value!r}")
    return float(value)


def _mapping(item: Any) -> Mapping[str, Any]:
    if not isinstance(item, dict):
        raise ValueError(f"a message or tool is no object: {item!r:.80}")
    return item


def _part(item: Any) -> Part:
    match item:
        case [str(name), int(tokens), str(kind)] if type(tokens) is int and tokens >= 0:
            return Part(name, tokens, kind)
    raise ValueError(f"a part is [name, tokens, kind], not {item!r:.80}")


def _tag(item: Any) -> tuple[int, str]:
    match item:
        case [int(end), str(name)] if type(end) is int and name in TAGS:
            return end, name
    raise ValueError(f"a tag is [end, name], not {item!r:.80}")


_ITEMS: Final = {
    "messages": _mapping,
    "tools": _mapping,
    "prompt_ids": lambda item: _whole(item, "prompt_ids"),
    "tags": _tag,
    "parts": _part,
}
