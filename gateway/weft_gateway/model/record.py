"""Immutable values that cost little to make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[_T]) -> type[_T]:
    """A dataclass that the type checker holds frozen.

    A call makes a dozen of these, and `frozen=True` pays for the promise at run time, field by
    field: a `Program` then takes five times as long to make.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
