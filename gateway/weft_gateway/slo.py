"""The SLO file: classes of deadlines (`WEFT_SLO_FILE`, YAML).

version: 1
default: batch
classes:
  chat:   {scope: turn, deadline: 8s, attainment: 0.95}
  report: {scope: program, deadline: 90s, late: refuse}
  batch:  {}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator
from weft_run import yaml_errors
from weft_run.yaml_errors import KeyPath, nearest

from weft_gateway.model.slo import Granted, Late, Scope, SloClass, Slos

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"(-?\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h)")
_MAX_CLASSES: Final = 64
_CLASS_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$"
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


class ClassEntry(BaseModel, extra="forbid"):
    """One class."""

    scope: Scope = Field(Scope.PROGRAM, description="the unit that has to end in time")
    deadline: Annotated[float, BeforeValidator(seconds)] | None = Field(
        None, description="duration with a unit, at most 24h; without one, there is no target"
    )
    attainment: float = Field(
        0.95, gt=0, lt=1, allow_inf_nan=False, description="share that should end in time"
    )
    late: Late = Field(Late.SERVE, description="fate of programs that cannot meet their target")

    @model_validator(mode="after")
    def _has_a_deadline(self) -> ClassEntry:
        if self.deadline is None and self.late is not Late.SERVE:
            raise ValueError(f"late: {self.late} needs a deadline")
        return self


class _File(BaseModel, extra="forbid"):
    version: Annotated[Literal[1], BeforeValidator(lambda value: 1 if value == "1" else value)]
    default: str
    classes: dict[Annotated[str, Field(pattern=_CLASS_NAME)], ClassEntry] = Field(
        min_length=1, max_length=_MAX_CLASSES
    )


_ITEMS: Final[Mapping[str, type[BaseModel]]] = {"": _File, "classes": ClassEntry}


def load(file: str) -> Slos:
    """Read the file. An empty name returns no classes. Raises SloError."""
    if not file:
        return Slos()
    try:
        # Every scalar stays a text: YAML would read some digests and durations as numbers.
        root, raw = yaml_errors.read(Path(file).read_text(encoding="utf-8"), yaml.BaseLoader)
    except OSError as error:
        raise SloError(f"{file}: {error.strerror or error}") from None
    except UnicodeError as error:
        raise SloError(f"{file}: not valid YAML: {error}") from None
    except yaml_errors.UnreadableError as error:
        line = f":{error.place[0]}" if error.place else ""
        raise SloError(f"{file}{line}: {error}") from None
    found = list(yaml_errors.duplicates(root))
    try:
        read = _File.model_validate(raw)
    except ValidationError as error:
        found += [_described(item) for item in error.errors()]
    else:
        if read.default not in read.classes:
            what = f"unknown class {read.default!r}{nearest(read.default, read.classes)}"
            found.append((("default",), what))
    if found:
        lines = sorted(
            (yaml_errors.mark(root, path)[0], yaml_errors.dotted(path), what)
            for path, what in found
        )
        raise SloError("\n".join(f"{file}:{line}: {path}{what}" for line, path, what in lines))
    return _slos(read)


def check(file: str) -> str:
    """Return the name of a valid file. Raises SloError."""
    load(file)
    return file


def _slos(read: _File) -> Slos:
    classes = {
        name: SloClass(name, one.scope, one.deadline or 0.0, one.attainment, one.late)
        for name, one in read.classes.items()
    }
    return Slos(classes, {}, Granted(read.default, frozenset(classes)))


def _described(error: Any) -> tuple[KeyPath, str]:
    path: KeyPath = error["loc"]
    # pydantic appends this to the path of an invalid name of a class.
    if path and path[-1] == "[key]":
        return path[:-1], "a class name has 1 to 32 letters, digits, dots, dashes or underscores"
    what = yaml_errors.reason(error)
    if path == ("classes",) and error["type"] in ("too_short", "too_long"):
        what = f"must have 1 to {_MAX_CLASSES} classes"
    if path == ("tenants",):
        what = "the classes of keys are in the keys file now (WEFT_KEYS_FILE): class and may"
    elif error["type"] == "extra_forbidden":
        model = _ITEMS[str(path[0]) if len(path) > 1 else ""]
        names = [one.alias or name for name, one in model.model_fields.items()]
        what = f"unknown key{nearest(str(path[-1]), names)}"
    return path, what
