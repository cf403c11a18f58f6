"""The tenants file: weights and limits per API key (`WEFT_TENANTS_FILE`, TOML).

[default]                      # keys without an entry
requests_per_minute = 600

[tenants.search]
key = "sk-..."                 # or: key_digest = "9f2c..." (16 hexadecimal digits)
weight = 3
tokens_per_minute = 2_000_000
calls_in_flight = 64
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from weft_gateway.model.limits import MAX_WEIGHT, MIN_WEIGHT, TenantRules
from weft_gateway.model.slo import Slos
from weft_gateway.programs.identity import tenant_of

# A limit per minute or of concurrent calls; 0: no limit.
Limit = Annotated[int, Field(ge=0, le=10**12)]


class TenantsError(ValueError):
    """The file is invalid. The message names the file, the entry and the member."""


@dataclass(frozen=True, slots=True)
class Tenants:
    """The rules of all tenants. named: by tenant, as returned by `tenant_of`."""

    default: TenantRules = field(default_factory=TenantRules)
    named: Mapping[str, TenantRules] = field(default_factory=dict)

    def of(self, tenant: str) -> TenantRules:
        """Return the rules of a tenant: its entry, or the default."""
        return self.named.get(tenant, self.default)

    def weight(self, tenant: str) -> float:
        """Return the weight of a tenant."""
        return self.of(tenant).weight

    def weighted(self, slos: Slos) -> Tenants:
        """Return these rules with the weights times those of the SLO file."""
        named = {
            tenant: _times(self.of(tenant), slos.of(tenant).weight)
            for tenant in {*self.named, *slos.tenants}
        }
        return Tenants(_times(self.default, slos.others.weight), named)

    @property
    def limited(self) -> bool:
        """Whether any tenant has a limit."""
        return self.default.limited or any(rules.limited for rules in self.named.values())


def _times(rules: TenantRules, factor: float) -> TenantRules:
    return replace(rules, weight=rules.weight * factor)


class _Rules(BaseModel, extra="forbid", strict=True):
    weight: Annotated[float, Field(ge=MIN_WEIGHT, le=MAX_WEIGHT, allow_inf_nan=False)] = 1.0
    requests_per_minute: Limit = 0
    tokens_per_minute: Limit = 0
    calls_in_flight: Limit = 0

    def over(self, default: TenantRules) -> TenantRules:
        """Return `default` with the members that are set here."""
        return replace(default, **self.model_dump(include=_RULES, exclude_unset=True))


_RULES = set(_Rules.model_fields)


class _Entry(_Rules):
    key: str = Field("", min_length=1)
    key_digest: str = Field("", pattern="^(?:[0-9a-f]{16}|public)$")

    @model_validator(mode="after")
    def _has_one_key(self) -> Self:
        if bool(self.key) == bool(self.key_digest):
            raise ValueError("set either key or key_digest")
        return self


class _File(BaseModel, extra="forbid"):
    default: _Rules = _Rules()
    tenants: dict[str, _Entry] = {}


def load(file: str, default: TenantRules) -> Tenants:
    """Read the file. An empty name applies `default` to every tenant. A `[default]` table overrides
    members of `default`; an entry overrides members of both. Raises TenantsError.
    """
    if not file:
        return Tenants(default)
    try:
        raw = tomllib.loads(Path(file).read_text(encoding="utf-8"))
        read = _File.model_validate(raw)
    except OSError as error:
        raise TenantsError(f"{file}: {error.strerror or error}") from None
    except ValidationError as error:
        raise TenantsError(f"{file}: {_described(error)}") from None
    except ValueError as error:
        raise TenantsError(f"{file} is not valid TOML: {error}") from None
    default = read.default.over(default)
    named: dict[str, TenantRules] = {}
    for name, entry in read.tenants.items():
        tenant = tenant_of(entry.key) if entry.key else entry.key_digest
        if tenant in named:
            raise TenantsError(f"{file}: tenants.{name}: another entry has the same key")
        named[tenant] = entry.over(default)
    return Tenants(default, named)


def check(file: str) -> str:
    """Return the name of a valid file. Raises TenantsError."""
    load(file, TenantRules())
    return file


def _described(error: ValidationError) -> str:
    """Return the place and the reason of the first error, without the value: it may be a key."""
    first = error.errors()[0]
    path = list(map(str, first["loc"]))
    what = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        known = [*_File.model_fields, *_Entry.model_fields]
        nearest = get_close_matches(path[-1], known, 1)
        what = f"unknown member{f'; did you mean {nearest[0]}?' if nearest else ''}"
    return f"{'.'.join(path)}: {what}"
