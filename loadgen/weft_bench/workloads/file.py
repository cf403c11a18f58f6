"""Workloads as files: JSON lines, plain or .xz, written and read without loss.

The first line is a header: `{"weft_workload": 2, "name": ...}` with the format's version and the
options that made the workload. Each other line is a `TraceProgram` without default values. Contexts
grow, so calls repeat most of their prompts: .xz files are far smaller than plain ones.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from weft_bench.workloads.schema import TraceError, TraceProgram

VERSION: Final = 2
MARK: Final = "weft_workload"


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
                print(_record(program), file=opened)
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
        try:
            yield msgspec.convert(record, TraceProgram)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None


def _record(program: TraceProgram) -> str:
    line = _line(msgspec.to_builtins(program))
    # JSON returns a tuple as a list, for example.
    if list(read([json.loads(line)])) != [program]:
        raise ValueError(f"JSON cannot represent {program.id}")
    return line


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
