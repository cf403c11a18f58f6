"""Every setting of the gateway: its default, unit and limits. Environment names: WEFT_<FIELD>."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from gateway import urls

PREFIX: Final = "WEFT_"
# Read by the engine's plugin (docs/engine.md).
_OF_ENGINES: Final = ("WEFT_ENGINE_SETTINGS", "WEFT_ORDER_OPTIONS")
# What a header's value may be without being changed on its way.
_HEADER_VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")


class Balancer(StrEnum):
    """How a replica is chosen. `locality` is Agentix Algorithm 2."""

    LOCALITY = "locality"
    ROUND_ROBIN = "round_robin"
    LEAST_USED = "least_used"


class SettingsError(ValueError):
    """A setting is wrong; the message names each one."""


def _split(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    parts = tuple(part.strip() for part in value.split(",") if part.strip())
    if value and not parts:
        # Taken for an empty list, a slip of the pen would open what it should close.
        raise ValueError(f"{value!r} names nothing")
    return parts


class Settings(BaseSettings):
    """The gateway's settings, read from arguments first, then from the environment. What may hold
    a secret is not shown: neither in `repr` nor in an error."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(8080, ge=1, le=65535, description="port to listen on")
    replicas: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="base URLs of the engines, comma-separated, without /v1"
    )
    replica_api_key: str = Field("", repr=False, description="bearer token sent to the engines")
    redis_url: str = Field("", repr=False, description="process table on Redis; empty: in memory")
    redis_prefix: str = Field(
        "weft",
        min_length=1,
        max_length=64,
        pattern=r"^[^{}]*$",
        description="key prefix on Redis, without braces",
    )
    redis_timeout_s: float = Field(
        1.0, ge=0.05, le=60, description="Redis not answering for so long is away, seconds"
    )
    call_lease_s: float = Field(
        120.0, ge=1, description="calls of a gateway that gives no sign for so long are closed"
    )
    balancer: Balancer = Field(Balancer.LOCALITY, description="how a replica is chosen")
    locality_threshold_tokens: int = Field(
        2048, ge=0, description="longer calls go to their program's home (Agentix 4.3), tokens"
    )
    replica_cache_tokens: int = Field(
        131_072,
        ge=0,
        le=100_000_000,
        description="prefix cache of a replica that does not tell its size, for new programs' "
        "placement, tokens; 0: none",
    )
    api_keys: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        repr=False,
        description="accepted API keys, comma-separated; empty: every key is its own tenant",
    )
    admin_key: str = Field(
        "", repr=False, description="bearer token for /weft/*; empty: loopback clients only"
    )
    traceparent_programs: bool = Field(False, description="the id of a W3C trace names a program")
    max_body_bytes: int = Field(
        33_554_432, ge=1024, le=1_073_741_824, description="largest request body, bytes"
    )
    websocket_idle_s: float = Field(
        900.0,
        gt=0,
        le=86_400,
        description="a WebSocket is closed after this long without a message from its client "
        "or an answer to it, seconds",
    )
    websockets_per_tenant: int = Field(
        256, ge=1, le=100_000, description="open WebSockets of one tenant, per gateway process"
    )
    connect_timeout_s: float = Field(
        5.0, gt=0, le=300, description="connecting to a replica, seconds"
    )
    first_byte_timeout_s: float = Field(
        900.0, gt=0, description="longest wait for a replica's first byte, seconds"
    )
    idle_timeout_s: float = Field(
        120.0, gt=0, description="longest silence inside a replica's answer, seconds"
    )
    health_interval_s: float = Field(
        2.0, gt=0, le=300, description="between health checks, seconds"
    )
    program_idle_s: float = Field(
        3600.0, gt=0, description="a program without calls for so long is ended, seconds"
    )
    program_idle_min_s: float = Field(
        300.0,
        gt=0,
        description="the same of kinds that are known to call sooner: never less, seconds",
    )
    max_programs_per_tenant: int = Field(
        100_000,
        ge=1,
        le=10_000_000,
        description="named programs of one tenant; one more ends his longest idle one",
    )
    lineage: bool = Field(
        True, description="calls without a key are joined to programs by what they say"
    )
    tag_prompts: bool = Field(True, description="engines are told what each prompt's tokens hold")
    auto_prefill: bool = Field(
        True, description="next turns are prefilled while tools run, where that has shown to pay"
    )
    receipts: int = Field(
        4096,
        ge=0,
        le=1_000_000,
        description="calls whose receipts are kept, shared fairly by tenants; 0: none",
    )
    receipts_age_s: float = Field(3600.0, gt=0, description="older receipts are gone, seconds")
    answer_keep_s: float = Field(
        86_400.0, gt=0, description="stored answers (Responses API) are found for so long, seconds"
    )
    engine_secret: str = Field(
        "", repr=False, description="shared secret for the engines' /weft/* routes"
    )
    drain_s: float = Field(
        30.0, ge=0, le=3600, description="calls in flight may take so long at shutdown, seconds"
    )
    retry_after_s: int = Field(2, ge=1, le=3600, description="Retry-After of a 503, seconds")

    @field_validator("replicas", "api_keys", mode="before")
    @classmethod
    def _comma_separated(cls, value: Any) -> Any:
        return _split(value)

    @field_validator("replicas")
    @classmethod
    def _replicas(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        cleaned = tuple(map(urls.replica_url, value))
        if len(set(map(urls.address, cleaned))) != len(cleaned):
            raise ValueError("the same replica is named twice")
        return cleaned

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, value: str) -> str:
        return urls.redis_url(value) if value else value

    @field_validator("api_keys", "admin_key", "replica_api_key", "engine_secret")
    @classmethod
    def _keys(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for key in (value,) if isinstance(value, str) else value:
            if key and not _HEADER_VALUE.fullmatch(key):
                raise ValueError(
                    "a key is printable ASCII, without line ends or spaces around it: "
                    "no header could carry this one"
                )
        return value


def load(**overrides: Any) -> Settings:
    """Settings from `overrides` (None means not given) and the environment.

    Raises SettingsError, with one line per wrong setting, each naming it and its variable.
    """
    try:
        return Settings(**{k: v for k, v in overrides.items() if v is not None})
    except ValidationError as error:
        lines = []
        for item in error.errors():
            name = str(item["loc"][0]) if item["loc"] else "settings"
            field = Settings.model_fields.get(name)
            what = item["msg"].removeprefix("Value error, ")
            # Our own checks have told what of it is wrong.
            if item["type"] != "value_error" and (field is None or field.repr):
                what += f"; got {item['input']!r}"
            lines.append(f"{name} ({PREFIX}{name.upper()}): {what}")
        raise SettingsError("\n".join(lines)) from None


def unread(variables: Iterable[str]) -> list[str]:
    """A line for each of these environment variables that looks like ours and is no setting, with
    the nearest one that is."""
    known = [f"{PREFIX}{name.upper()}" for name in Settings.model_fields] + [*_OF_ENGINES]
    lines = []
    for name in variables:
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            nearest = get_close_matches(name.upper(), known, 1)
            also = f"; did you mean {nearest[0]}?" if nearest else ""
            lines.append(f"{name} is read by nothing{also}")
    return lines
