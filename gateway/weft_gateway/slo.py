"""The SLO file: classes of deadlines, and the classes of API keys (`WEFT_SLO_FILE`, YAML).

version: 1
default: batch
classes:
  chat:   {scope: turn, deadline: 8s, attainment: 0.95, weight: 4}
  report: {scope: program, deadline: 90s, late: refuse}
  batch:  {}
tenants:
  - {key_digest: 9f2c0123456789ab, class: report, may: [chat, report], share: 0.5}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from weft_gateway import marks
from weft_gateway.marks import KeyPath, nearest
from weft_gateway.model.limits import MAX_WEIGHT, MIN_WEIGHT
from weft_gateway.model.slo import Granted, Late, Scope, SloClass, Slos

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"(-?\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h)")
_DIGEST: Final = re.compile(r"[0-9a-f]{16}|public")
_MAX_CLASSES: Final = 64
MAX_DEADLINE_S: Final = 86_400.0


class SloError(ValueError):
    """The file is invalid. The message has one line per error: file, line, path and reason."""


def seconds(value: Any) -> float:
    """Read a duration such as `8s`, `90s`, `2m` or `500ms`. Raises ValueError."""
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError("must be a duration with a unit (ms, s, m, h), for example 8s or 2m")
    length = float(found[1]) * _UNITS[found[2]]
    if not 0 < length <= MAX_DEADLINE_S:
        raise ValueError("must be more than 0 and at most 24h")
    return length


class _Class(BaseModel, extra="forbid"):
    scope: Scope = Scope.PROGRAM
    deadline: Annotated[float, BeforeValidator(seconds)] | None = None
    attainment: float = Field(0.95, gt=0, lt=1, allow_inf_nan=False)
    weight: float = Field(1.0, ge=MIN_WEIGHT, le=MAX_WEIGHT, allow_inf_nan=False)
    late: Late = Late.SERVE

    @model_validator(mode="after")
    def _has_a_deadline(self) -> _Class:
        if self.deadline is None and self.late is not Late.SERVE:
            raise ValueError(f"late: {self.late} needs a deadline")
        return self


def _digest(value: Any) -> Any:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError("must be 16 hexadecimal digits in lower case, or public")
    return value


class _Tenant(BaseModel, extra="forbid"):
    key_digest: Annotated[str, BeforeValidator(_digest)]
    class_: str | None = Field(None, alias="class")
    may: list[str] | None = None
    share: float = Field(1.0, ge=MIN_WEIGHT, le=1, allow_inf_nan=False)


class _File(BaseModel, extra="forbid"):
    version: Annotated[Literal[1], BeforeValidator(lambda value: 1 if value == "1" else value)]
    default: str
    classes: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$")], _Class] = (
        Field(min_length=1, max_length=_MAX_CLASSES)
    )
    tenants: list[_Tenant] = []


_ITEMS: Final[Mapping[str, type[BaseModel]]] = {"": _File, "classes": _Class, "tenants": _Tenant}


def load(file: str) -> Slos:
    """Read the file. An empty name returns no classes. Raises SloError."""
    if not file:
        return Slos()
    try:
        # Every scalar stays a text: YAML would read some digests and durations as numbers.
        root, raw = marks.read(Path(file).read_text(encoding="utf-8"), yaml.BaseLoader)
    except OSError as error:
        raise SloError(f"{file}: {error.strerror or error}") from None
    except UnicodeError as error:
        raise SloError(f"{file}: not valid YAML: {error}") from None
    except marks.UnreadableError as error:
        line = f":{error.place[0]}" if error.place else ""
        raise SloError(f"{file}{line}: {error}") from None
    found = list(marks.duplicates(root))
    try:
        read = _File.model_validate(raw)
    except ValidationError as error:
        found += [_described(item) for item in error.errors()]
    else:
        found += _unknown_classes(read)
    if found:
        lines = sorted(
            (marks.mark(root, path)[0], marks.dotted(path), what) for path, what in found
        )
        raise SloError("\n".join(f"{file}:{line}: {path}{what}" for line, path, what in lines))
    return _slos(read)


def check(file: str) -> str:
    """Return the name of a valid file. Raises SloError."""
    load(file)
    return file


def _slos(read: _File) -> Slos:
    classes = {
        name: SloClass(name, one.scope, one.deadline or 0.0, one.attainment, one.weight, one.late)
        for name, one in read.classes.items()
    }
    tenants = {}
    for entry in read.tenants:
        own = entry.class_ or read.default
        may = {own} if entry.may is None else {own, *entry.may}
        weight = classes[own].weight * entry.share
        tenants[entry.key_digest] = Granted(own, frozenset(may), weight)
    # If some keys have grants, a key without one has the default only.
    others = {read.default} if tenants else set(classes)
    weight = classes[read.default].weight
    return Slos(classes, tenants, Granted(read.default, frozenset(others), weight))


def _unknown_classes(read: _File) -> Iterator[tuple[KeyPath, str]]:
    """Yield the errors that concern several parts of the file."""
    named: list[tuple[KeyPath, str]] = [(("default",), read.default)]
    digests = set()
    for number, entry in enumerate(read.tenants):
        at = ("tenants", number)
        if entry.key_digest in digests:
            yield (*at, "key_digest"), "another entry has the same key"
        digests.add(entry.key_digest)
        if entry.class_ is not None:
            named.append(((*at, "class"), entry.class_))
        named += [((*at, "may", index), name) for index, name in enumerate(entry.may or ())]
    for path, name in named:
        if name not in read.classes:
            yield path, f"unknown class {name!r}{nearest(name, read.classes)}"


def _described(error: Any) -> tuple[KeyPath, str]:
    path: KeyPath = error["loc"]
    # pydantic appends this to the path of an invalid name of a class.
    if path and path[-1] == "[key]":
        return path[:-1], "a class name has 1 to 32 letters, digits, dots, dashes or underscores"
    what = marks.reason(error)
    if path == ("classes",) and error["type"] in ("too_short", "too_long"):
        what = f"must have 1 to {_MAX_CLASSES} classes"
    if error["type"] == "extra_forbidden":
        model = _ITEMS[str(path[0]) if len(path) > 1 else ""]
        names = [one.alias or name for name, one in model.model_fields.items()]
        what = f"unknown key{nearest(str(path[-1]), names)}"
    return path, what
