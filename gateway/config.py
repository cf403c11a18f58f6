"""Every setting of the gateway: its default, unit and limits. Environment names: WEFT_<FIELD>."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


class Balancer(StrEnum):
    """How a replica is chosen. `locality` is Agentix Algorithm 2."""

    LOCALITY = "locality"
    ROUND_ROBIN = "round_robin"
    LEAST_USED = "least_used"


class SettingsError(ValueError):
    """A setting is wrong; the message names each one."""


def _split(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


class Settings(BaseSettings):
    """The gateway's settings, read from arguments first, then from the environment."""

    model_config = SettingsConfigDict(env_prefix="WEFT_", frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8080, ge=1, le=65535, description="port to listen on")
    replicas: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="base URLs of the engines, comma-separated, without /v1"
    )
    replica_api_key: str = Field("", description="bearer token sent to the engines")
    redis_url: str = Field("", description="process table on Redis; empty: in memory")
    redis_prefix: str = Field(
        "weft", min_length=1, max_length=64, description="key prefix on Redis"
    )
    balancer: Balancer = Field(Balancer.LOCALITY, description="how a replica is chosen")
    locality_threshold_tokens: int = Field(
        2048, ge=0, description="longer calls go to their program's home (Agentix 4.3), tokens"
    )
    api_keys: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="accepted API keys, comma-separated; empty: every key is its own tenant"
    )
    admin_key: str = Field("", description="bearer token for /weft/*; empty: loopback clients only")
    traceparent_programs: bool = Field(False, description="the id of a W3C trace names a program")
    max_body_bytes: int = Field(
        33_554_432, ge=1024, le=1_073_741_824, description="largest request body, bytes"
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
    engine_secret: str = Field("", description="shared secret for the engines' /weft/* routes")
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
    def _urls(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        cleaned = tuple(url.rstrip("/").removesuffix("/v1") for url in value)
        for url in cleaned:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"{url!r} is not an http:// or https:// URL")
        if len(set(cleaned)) != len(cleaned):
            raise ValueError("the same replica is named twice")
        return cleaned

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, value: str) -> str:
        if value and not value.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must start with redis://, rediss:// or unix://")
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
            lines.append(f"{name} (WEFT_{name.upper()}): {item['msg']}; got {item['input']!r}")
        raise SettingsError("\n".join(lines)) from None
