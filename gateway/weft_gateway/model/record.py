"""Immutable records that are cheap to create."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[_T]) -> type[_T]:
    """Declare a dataclass that only the type checker treats as frozen.

    A call creates a dozen of these, and `frozen=True` costs time for every field at run time:
    creating a `Program` takes five times as long.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
