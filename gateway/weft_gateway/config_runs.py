"""The settings of runs over HTTP, a part of `weft_gateway.config.Settings`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode
from weft_run.urls import allowed_host

_CONNECTION: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# A host without a port means the ports of its two schemes.
_PORTS: Final = (80, 443)


def split(value: Any) -> Any:
    """Split a comma-separated text. Raises ValueError if it contains only commas."""
    if not isinstance(value, str):
        return value
    parts = tuple(part.strip() for part in value.split(",") if part.strip())
    if value and not parts:
        # Treated as an empty list, a typing error would disable a restriction.
        raise ValueError(f"{value!r} contains no value")
    return parts


class RunSettings(BaseSettings):
    """What the operators of runs over HTTP may read and reach."""

    run_databases: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="SQLite databases that `sql` operators of runs over HTTP may read, "
        "comma-separated `NAME=FILE`",
    )
    run_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="hosts that `http` operators of runs over HTTP may reach, comma-separated "
        "`HOST` (ports 80 and 443) or `HOST:PORT`",
    )

    @field_validator("run_databases", "run_hosts", mode="before")
    @classmethod
    def _lists(cls, value: Any) -> Any:
        return split(value)

    @field_validator("run_databases")
    @classmethod
    def _databases(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            name, _, file = one.partition("=")
            if not _CONNECTION.fullmatch(name) or not file:
                raise ValueError(f"{one!r} must be NAME=FILE")
            if not Path(file).is_file():
                raise ValueError(f"the file {file} does not exist")
        return value

    @field_validator("run_hosts")
    @classmethod
    def _hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            allowed_host(one)
        return value

    @property
    def connection_files(self) -> dict[str, str]:
        """The databases of runs by connection name."""
        pairs = [one.partition("=") for one in self.run_databases]
        return {name: str(Path(file).resolve()) for name, _, file in pairs}

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """The hosts of runs as `host:port`."""
        found = set()
        for one in self.run_hosts:
            host, port = allowed_host(one)
            found |= {f"{host}:{number}" for number in ((port,) if port else _PORTS)}
        return frozenset(found)
