"""The accepted API keys and the rules of their tenants, from the settings and from the keys file
(`WEFT_KEYS_FILE`, TOML):

[default]                      # limits of keys that set none
requests_per_minute = 600

[keys.search]
digest = "9f2c0123456789ab"    # or: key = "sk-..."
weight = 3
tokens_per_minute = 2_000_000
class = "report"               # classes of the SLO file
may = ["chat"]
budget = { dollars = 50.0, per = "day" }

[classes.report]               # all its calls, of all keys
budget = { tokens = 2_000_000_000, per = "month" }
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from weft_gateway.allowances import NEEDS_PRICES, PeriodEntry
from weft_gateway.model.limits import MAX_WEIGHT, MIN_WEIGHT, Budget, TenantRules
from weft_gateway.model.slo import Granted, Slos
from weft_gateway.programs.identity import ANONYMOUS, tenant_of

# A limit per minute or of concurrent calls; 0: no limit.
Limit = Annotated[int, Field(ge=0, le=10**12)]
NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class TenantsError(ValueError):
    """The file is invalid. The message names the file, the entry and the member."""


def checked_key(key: str) -> str:
    """Return the key. Raises ValueError if a header cannot carry it unchanged."""
    if not re.fullmatch(r"[!-~](?:[ -~]*[!-~])?", key):
        raise ValueError("a key must be printable ASCII without line ends or surrounding spaces")
    return key


class Tenants:
    """The tenants of one gateway, which all of its parts share. `reload` changes them in place.

    required: whether calls need an accepted key. grants: classes by tenant, for `Slos.tenants`.
    class_budgets: by class.
    """

    def __init__(
        self,
        file: str = "",
        api_keys: Iterable[str] = (),
        slos: Slos | None = None,
        priced: bool = True,
    ) -> None:
        """file: the keys file, "" for none. api_keys: keys
        that are accepted beside those of the file. slos: the classes. priced: whether there are
        prices, which budgets in dollars need. Raises TenantsError.
        """
        self._priced = priced
        self._file = file
        self._slos = slos or Slos()
        self._listed = [tenant_of(key) for key in api_keys]
        self.required = bool(file or self._listed)
        self.grants: dict[str, Granted] = {}
        self.class_budgets: dict[str, Budget] = {}
        # Names outlive their keys, because reports count since the gateway started.
        self._names: dict[str, str] = {}
        self.reload()

    def reload(self) -> int:
        """Read the file again. Return the number of accepted keys. Raises TenantsError, and
        then changes nothing.
        """
        read = _read(self._file, self._slos, self._priced) if self._file else _File()
        default = read.default.over(TenantRules())
        entries = {entry.tenant: entry for entry in read.keys.values()}
        # If some keys have classes, a key without one has the default only.
        classed = any(entry.class_ or entry.may is not None for entry in entries.values())
        others = {self._slos.others.default} if classed else {*self._slos.classes}
        grants, rules = {}, {}
        for tenant in (*self._listed, *entries):
            entry = entries.get(tenant, _NO_ENTRY)
            own = entry.class_ or self._slos.others.default
            may = others if entry.may is None and not entry.class_ else {own, *(entry.may or ())}
            grants[tenant] = Granted(own, frozenset(may))
            rules[tenant] = entry.over(default)
        self._rules, self._other = rules, default
        self._names |= {entry.tenant: name for name, entry in read.keys.items()}
        self.class_budgets = {name: one.budget.budget for name, one in read.classes.items()}
        self.grants.clear()
        self.grants.update(grants)
        return len(rules)

    def accepts(self, tenant: str) -> bool:
        """Whether a key of this tenant is accepted."""
        return tenant in self._rules

    def of(self, tenant: str) -> TenantRules:
        """Return the rules of a tenant: those of its key, or the default."""
        return self._rules.get(tenant, self._other)

    def weight(self, tenant: str) -> float:
        """Return the weight of a tenant."""
        return self.of(tenant).weight

    def name(self, tenant: str) -> str:
        """Return the name of a tenant's key for people, or the tenant if its key has no name."""
        return self._names.get(tenant, tenant)

    @property
    def limited(self) -> bool:
        """Whether a tenant has a limit, or may get one."""
        return bool(self._file) or self._other.limited


class ClassEntry(BaseModel, extra="forbid"):
    """The rules of all calls of one class."""

    budget: PeriodEntry


class _Rules(BaseModel, extra="forbid", strict=True):
    weight: float = Field(
        default=1.0,
        ge=MIN_WEIGHT,
        le=MAX_WEIGHT,
        allow_inf_nan=False,
        description="share of engine time and cache while keys contend",
    )
    requests_per_minute: Limit = Field(default=0, description="requests per minute; 0: no limit")
    tokens_per_minute: Limit = Field(
        default=0, description="prompt and output tokens per minute; 0: no limit"
    )
    calls_in_flight: Limit = Field(default=0, description="concurrent calls; 0: no limit")
    budget: PeriodEntry | None = Field(default=None, description="budget of all its calls")

    def over(self, default: TenantRules) -> TenantRules:
        """Return `default` with the members that are set here."""
        set_here = {name: getattr(self, name) for name in self.model_fields_set & _RULES}
        if self.budget is not None:
            set_here["budget"] = self.budget.budget
        return replace(default, **set_here)


_RULES = set(_Rules.model_fields)


class KeyEntry(_Rules):
    """The rules of one key."""

    key: Annotated[str, AfterValidator(checked_key)] = Field("", min_length=1)
    digest: str = Field("", pattern="^[0-9a-f]{16}$")
    class_: str = Field(
        "", alias="class", description="class of the SLO file; empty: the file's default"
    )
    may: list[str] | None = Field(None, description="further classes that calls may ask for")

    @property
    def tenant(self) -> str:
        """The tenant of the key."""
        return tenant_of(self.key) if self.key else self.digest

    @model_validator(mode="after")
    def _has_one_key(self) -> Self:
        if bool(self.key) == bool(self.digest):
            raise ValueError("set either key or digest")
        return self


# Of keys that only the settings name.
_NO_ENTRY: Final = KeyEntry.model_construct()


class _File(BaseModel, extra="forbid"):
    default: _Rules = _Rules()
    keys: dict[Annotated[str, Field(pattern=NAME)], KeyEntry] = {}
    classes: dict[str, ClassEntry] = {}


def _read(file: str, slos: Slos, priced: bool) -> _File:
    try:
        return parsed(Path(file).read_text(encoding="utf-8"), slos, priced)
    except OSError as error:
        raise TenantsError(f"{file}: {error.strerror or error}") from None
    except ValueError as error:
        raise TenantsError(f"{file}: {error}") from None


def parsed(text: str, slos: Slos | None = None, priced: bool = True) -> _File:
    """Return the content of a keys file. slos: the classes; None: any name is one. Raises
    ValueError, without the value of a key.
    """
    try:
        read = _File.model_validate(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"not valid TOML: {error}") from None
    except ValidationError as error:
        raise ValueError(_described(error)) from None
    for what in (*_conflicts(read, slos), *(() if priced else _unpriced(read))):
        raise ValueError(what)
    return read


def _unpriced(read: _File) -> Iterator[str]:
    rules: dict[str, _Rules | ClassEntry] = {"default": read.default}
    rules |= {f"keys.{name}": entry for name, entry in read.keys.items()}
    rules |= {f"classes.{name}": entry for name, entry in read.classes.items()}
    for path, entry in rules.items():
        if entry.budget is not None and entry.budget.dollars is not None:
            yield f"{path}.budget.dollars: {NEEDS_PRICES}"


def _conflicts(read: _File, slos: Slos | None) -> Iterator[str]:
    seen: dict[str, str] = {}
    for name in read.classes:
        if slos is not None and name not in slos.classes:
            known = ", ".join(slos.classes) or "none, without an SLO file"
            yield f"classes.{name}: unknown class; known: {known}"
    for name, entry in read.keys.items():
        if name in (ANONYMOUS, "others"):
            yield f"keys.{name}: reports use this name; choose another one"
        if entry.tenant in seen:
            yield f"keys.{name}: the entry {seen[entry.tenant]} has the same key"
        seen[entry.tenant] = name
        for slo in (entry.class_, *(entry.may or ())):
            if slo and slos is not None and slo not in slos.classes:
                known = ", ".join(slos.classes) or "none, without an SLO file"
                yield f"keys.{name}: unknown class {slo!r}; known: {known}"


def _described(error: ValidationError) -> str:
    """Return the place and the reason of the first error, without the value: it may be a key."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"] if part != "[key]"]
    what = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        known = [*_File.model_fields, *_Rules.model_fields, "key", "digest", "class", "may"]
        if "budget" in path[:-1]:
            known = [*PeriodEntry.model_fields]
        nearest = get_close_matches(path[-1], known, 1)
        what = f"unknown member{f'; did you mean {nearest[0]}?' if nearest else ''}"
    if path == ["tenants"]:
        what = "the tables are called [keys.NAME] now, and key_digest is digest"
    return f"{'.'.join(path)}: {what}"
