"""The price file (`WEFT_PRICES_FILE`, TOML): what calls cost. Pure, except for reading the file.

[[price]]
model = "Qwen/Qwen3-8B"       # a name as served; "*" for all others
input = 0.20                  # dollars per million prompt tokens
cached = 0.02                 # of those in the prefix cache; missing: as `input`
output = 0.60
from = 2026-11-01             # first day, UTC; missing: always

[[price]]
model = "*"
gpu_hour = 2.50               # dollars per hour of engine time, in place of prices per token
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from datetime import UTC, date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from weft_gateway.model.spending import NANO

_ANY: Final = "*"
_HOUR_S: Final = 3600.0
_MILLION: Final = 1_000_000

Dollars = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class PricesError(ValueError):
    """The file is invalid. The message names the file and the member."""


class Price(BaseModel, extra="forbid", strict=True):
    """The price of a model from a day on."""

    model: str = Field(min_length=1, description="name as served; `*`: all others")
    input: Dollars | None = Field(None, description="dollars per million prompt tokens")
    cached: Dollars | None = Field(
        None, description="dollars per million cached prompt tokens; missing: as `input`"
    )
    output: Dollars | None = Field(None, description="dollars per million output tokens")
    gpu_hour: Dollars | None = Field(None, description="dollars per hour of engine time")
    from_: date = Field(date.min, alias="from", description="first day, UTC")

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        by_token = (self.input, self.cached, self.output)
        if (self.gpu_hour is None) == all(each is None for each in by_token):
            raise ValueError("set either gpu_hour, or input and output")
        if self.gpu_hour is None and (self.input is None or self.output is None):
            raise ValueError("input and output are both needed")
        return self


class _File(BaseModel, extra="forbid"):
    price: list[Price] = Field(min_length=1, max_length=10_000)


class Prices:
    """The prices of all models; none at first."""

    def __init__(self, prices: Iterable[Price] = ()) -> None:
        self._of: dict[str, list[Price]] = {}
        for each in sorted(prices, key=lambda each: each.from_, reverse=True):
            self._of.setdefault(each.model, []).append(each)

    def __bool__(self) -> bool:
        return bool(self._of)

    def nanodollars(
        self, model: str, at_s: float, prompt: int, cached: int, output: int, engine_s: float
    ) -> int:
        """Return the price of a call; 0 if the model has none. at_s: Unix time. prompt: tokens with
        the cached ones.
        """
        price = self._price(model, at_s) if self._of else None
        if price is None:
            return 0
        if price.gpu_hour is not None:
            return round(price.gpu_hour * engine_s / _HOUR_S * NANO)
        fresh, out = price.input or 0.0, price.output or 0.0
        hit = fresh if price.cached is None else price.cached
        dollars = (prompt - cached) * fresh + cached * hit + output * out
        return round(dollars * (NANO / _MILLION))

    def _price(self, model: str, at_s: float) -> Price | None:
        day = datetime.fromtimestamp(at_s, UTC).date()
        for name in (model, _ANY):
            for price in self._of.get(name, ()):
                if price.from_ <= day:
                    return price
        return None


def load(file: str) -> Prices:
    """Read the file. An empty name returns no prices. Raises PricesError."""
    if not file:
        return Prices()
    try:
        return Prices(parsed(Path(file).read_text(encoding="utf-8")))
    except OSError as error:
        raise PricesError(f"{file}: {error.strerror or error}") from None
    except ValueError as error:
        raise PricesError(f"{file}: {error}") from None


def check(file: str) -> str:
    """Return the name of a valid file. Raises PricesError."""
    load(file)
    return file


def parsed(text: str) -> list[Price]:
    """Return the prices of a file's text. Raises ValueError with the path of the wrong member."""
    try:
        found = _File.model_validate(tomllib.loads(text)).price
    except ValidationError as error:
        first = error.errors()[0]
        path, what = first["loc"], first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            known = [one.alias or name for name, one in Price.model_fields.items()]
            near = get_close_matches(str(path[-1]), known if len(path) > 1 else ["price"], 1)
            what = f"unknown member{f'; did you mean {near[0]}?' if near else ''}"
        raise ValueError(f"{'.'.join(map(str, path))}: {what}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"not valid TOML: {error}") from None
    seen: dict[tuple[str, date], int] = {}
    for number, each in enumerate(found):
        other = seen.setdefault((each.model, each.from_), number)
        if other != number:
            raise ValueError(f"price.{number}: price.{other} has the same model and day")
    return found
