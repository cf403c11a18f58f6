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

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from weft_gateway.model.limits import TenantRules
from weft_gateway.programs.identity import tenant_of

_LIMITS: Final = ("requests_per_minute", "tokens_per_minute", "calls_in_flight")
_DIGEST: Final = re.compile(r"[0-9a-f]{16}|public")
_LARGEST: Final = 10**12


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

    @property
    def limited(self) -> bool:
        """Whether any tenant has a limit."""
        return self.default.limited or any(rules.limited for rules in self.named.values())


def load(file: str, default: TenantRules) -> Tenants:
    """Read the file. An empty name applies `default` to every tenant. A `[default]` table overrides
    members of `default`; an entry overrides members of both. Raises TenantsError.
    """
    if not file:
        return Tenants(default)
    try:
        raw = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise TenantsError(f"{file}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TenantsError(f"{file} is not valid TOML: {error}") from None
    _known(file, "the file", raw, ("default", "tenants"))
    default = _rules(f"{file}: default", _table(file, "default", raw.get("default", {})), default)
    named: dict[str, TenantRules] = {}
    for name, entry in _table(file, "tenants", raw.get("tenants", {})).items():
        where = f"{file}: tenants.{name}"
        members = dict(_table(file, f"tenants.{name}", entry))
        tenant = _tenant(where, members)
        if tenant in named:
            raise TenantsError(f"{where}: another entry has the same key")
        named[tenant] = _rules(where, members, default)
    return Tenants(default, named)


def _tenant(where: str, members: dict[str, Any]) -> str:
    key, digest = members.pop("key", None), members.pop("key_digest", None)
    if (key is None) == (digest is None):
        raise TenantsError(f"{where}: set either key or key_digest")
    if key is not None:
        if not isinstance(key, str) or not key:
            raise TenantsError(f"{where}.key: must be a non-empty string")
        return tenant_of(key)
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise TenantsError(
            f'{where}.key_digest: must be 16 hexadecimal digits, or "public" for calls without a '
            "key"
        )
    return digest


def _rules(where: str, members: Mapping[str, Any], default: TenantRules) -> TenantRules:
    _known(where, "this entry", members, ("weight", *_LIMITS))
    weight = members.get("weight", default.weight)
    real = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not (real and math.isfinite(weight) and 0 < weight <= 1e6):
        raise TenantsError(f"{where}.weight: must be a number above 0, got {weight!r}")
    limits = []
    for name in _LIMITS:
        value = members.get(name, getattr(default, name))
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole and 0 <= value <= _LARGEST):
            raise TenantsError(f"{where}.{name}: must be a whole number, 0 or more, got {value!r}")
        limits.append(value)
    return TenantRules(float(weight), *limits)


def _table(file: str, name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TenantsError(f"{file}: {name} must be a table")
    return value


def _known(where: str, what: str, members: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in members:
        if name not in known:
            nearest = get_close_matches(name, known, 1)
            also = f"; did you mean {nearest[0]}?" if nearest else f"; known: {', '.join(known)}"
            raise TenantsError(f"{where}: {what} has no member {name!r}{also}")
