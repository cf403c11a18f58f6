"""Every setting of the gateway: its default, unit and limits. Environment names: WEFT_<FIELD>."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from weft_gateway import tenants, urls
from weft_gateway.model.limits import TenantRules

PREFIX: Final = "WEFT_"
# Read by the engine's plugin (docs/engine.md).
_OF_ENGINES: Final = ("WEFT_ENGINE_SETTINGS", "WEFT_ORDER_OPTIONS")
# A variable with such a name was meant to close something.
_GUARDS: Final = re.compile("KEY|SECRET|TOKEN|PASS|AUTH|CREDENTIAL")
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
        (),
        description="base URLs of the engines, comma-separated, without /v1; `NAME=URL` names one, "
        "else its name is its host, port and path",
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
    tenants_file: str = Field(
        "", description="TOML file with weights and limits of single API keys; empty: none"
    )
    requests_per_minute: int = Field(
        0, ge=0, le=10**12, description="requests per minute of each API key; 0: no limit"
    )
    tokens_per_minute: int = Field(
        0,
        ge=0,
        le=10**12,
        description="prompt and output tokens per minute of each API key; 0: no limit",
    )
    calls_in_flight: int = Field(
        0, ge=0, le=10**12, description="calls of each API key at the same time; 0: no limit"
    )
    admin_key: str = Field(
        "", repr=False, description="bearer token for /weft/*; empty: loopback clients only"
    )
    admin_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="further names under which /weft/* may be asked without an admin key, "
        "comma-separated",
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="origins of web pages that may call /v1/*, comma-separated; *: any",
    )
    traceparent_programs: bool = Field(False, description="the id of a W3C trace names a program")
    max_body_bytes: int = Field(
        33_554_432, ge=1024, le=1_073_741_824, description="largest request body, bytes"
    )
    read_body_bytes: int = Field(
        4_194_304,
        ge=65_536,
        le=67_108_864,
        description="of larger bodies the content is passed on unread: no lineage, no tags; bytes",
    )
    max_head_bytes: int = Field(
        65_536, ge=4096, le=1_048_576, description="largest request head, bytes"
    )
    max_headers: int = Field(128, ge=16, le=10_000, description="most headers of a request")
    head_timeout_s: float = Field(
        20.0, gt=0, le=3600, description="longest time for a request's head, seconds"
    )
    body_timeout_s: float = Field(
        120.0, gt=0, le=3600, description="longest time for a request's body, seconds"
    )
    send_timeout_s: float = Field(
        30.0,
        gt=0,
        le=3600,
        description="a client that takes in nothing of its answer for so long is cut off, seconds",
    )
    # Agents think and call tools between calls: a connection that is closed under them costs a
    # failed request or a new handshake.
    keep_alive_s: float = Field(
        75.0, gt=0, le=3600, description="idle connections of clients are closed after, seconds"
    )
    max_connections: int = Field(
        4096,
        ge=1,
        le=1_000_000,
        description="connections of clients; one more closes an idle one, or gets a 503",
    )
    max_connections_per_key: int = Field(
        1024,
        ge=1,
        le=1_000_000,
        description="connections with a request in progress, and open WebSockets, of one API key; "
        "one more gets a 429",
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
    websocket_message_bytes: int = Field(
        8_388_608,
        ge=1024,
        le=1_073_741_824,
        description="largest message of a WebSocket, bytes; max_body_bytes bounds it as well",
    )
    websocket_kept_bytes: int = Field(
        536_870_912,
        ge=0,
        description="items that WebSockets keep for the next turn, per gateway process, bytes; "
        "beyond it those of the longest idle ones are forgotten",
    )
    websocket_kept_bytes_per_tenant: int = Field(
        134_217_728, ge=0, description="the same for the WebSockets of one tenant, bytes"
    )
    connect_timeout_s: float = Field(
        5.0, gt=0, le=300, description="connecting to a replica, seconds"
    )
    attempts_per_call: int = Field(
        3,
        ge=1,
        le=100,
        description="replicas tried for one call while connections to them fail; a call of which "
        "a byte was sent is not tried again",
    )
    first_byte_timeout_s: float = Field(
        900.0, gt=0, description="longest wait for a replica's first byte, seconds"
    )
    idle_timeout_s: float = Field(
        120.0, gt=0, description="longest silence inside a replica's answer, seconds"
    )
    lost_after_s: float = Field(
        5.0,
        ge=0,
        le=3600,
        description="open calls fail so long after their replica stopped accepting connections, "
        "unless bytes still arrive, seconds; set it above the time that engines take to drain",
    )
    max_answer_bytes: int = Field(
        268_435_456,
        ge=1024,
        le=17_179_869_184,
        description="largest answer of a replica that is not a stream, bytes",
    )
    health_interval_s: float = Field(
        2.0, gt=0, le=300, description="between health checks, seconds"
    )
    program_idle_s: float = Field(
        3600.0, gt=0, description="a program without calls for so long is ended, seconds"
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
    prefills_per_tenant: int = Field(
        256, ge=1, le=65_536, description="prefills that one tenant may have open at once"
    )
    prefills: int = Field(
        8192,
        ge=1,
        le=1_000_000,
        description="open prefills of all tenants that a gateway knows, shared fairly by tenants; "
        "on Redis, which gateways share, 8 times as many",
    )
    listeners_per_session: int = Field(
        64, ge=1, le=65_536, description="event streams of one session through one gateway"
    )
    listeners_per_tenant: int = Field(
        256, ge=1, le=65_536, description="event streams of one tenant through one gateway"
    )
    listeners: int = Field(
        4096,
        ge=1,
        le=1_000_000,
        description="event streams of all tenants through one gateway, shared fairly by tenants",
    )
    answer_keep_s: float = Field(
        86_400.0, gt=0, description="stored answers (Responses API) are found for so long, seconds"
    )
    engine_secret: str = Field(
        "", repr=False, description="shared secret for the engines' /weft/* routes"
    )
    drain_s: float = Field(
        30.0, ge=0, le=3600, description="calls in flight may take so long at shutdown, seconds"
    )
    retry_after_s: int = Field(
        2, ge=1, le=3600, description="Retry-After of a refusal that another try may pass, seconds"
    )

    @field_validator("replicas", "api_keys", "admin_hosts", "cors_origins", mode="before")
    @classmethod
    def _comma_separated(cls, value: Any) -> Any:
        return _split(value)

    @field_validator("replicas")
    @classmethod
    def _replicas(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        named = [urls.named_replica(text) for text in value]
        if len({urls.address(url) for _, url in named}) != len(named):
            raise ValueError("the same replica is named twice")
        names = [name for name, _ in named]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two replicas are named {name}: name one of them, as NAME=URL")
        return tuple(
            f"{name}={url}" if urls.named_replica(url)[0] != name else url for name, url in named
        )

    @field_validator("tenants_file")
    @classmethod
    def _tenants_file(cls, value: str) -> str:
        # A file that cannot be used is refused before anything starts.
        tenants.load(value, TenantRules())
        return value

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(urls.origin, value))

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

    @property
    def replica_urls(self) -> dict[str, str]:
        """Each replica's base URL by its name, in their order."""
        return dict(map(urls.named_replica, self.replicas))


def load(**overrides: Any) -> Settings:
    """Settings from `overrides` (None means not given) and the environment.

    Raises SettingsError, with one line per wrong setting, each naming it and its variable; also for
    a variable that looks like a key of ours and is no setting: what it was to close is open.
    """
    unknown = [line for name, line in _unknown(os.environ) if _GUARDS.search(name.upper())]
    if unknown:
        raise SettingsError("\n".join(unknown))
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
    return [line for _, line in _unknown(variables)]


def exposed(settings: Settings) -> list[str]:
    """A line where other machines reach the gateway and no API key keeps them out."""
    if settings.api_keys or _is_loopback(settings.host):
        return []
    return [
        f"ANYONE who reaches {settings.host}:{settings.port} can use every model: no API keys are "
        f"set. Set {PREFIX}API_KEYS, or listen on 127.0.0.1"
    ]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _unknown(variables: Iterable[str]) -> list[tuple[str, str]]:
    """Variables that look like ours and are no setting, each with a line that says so."""
    known = [f"{PREFIX}{name.upper()}" for name in Settings.model_fields] + [*_OF_ENGINES]
    found = []
    for name in variables:
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            nearest = get_close_matches(name.upper(), known, 1)
            also = f"; did you mean {nearest[0]}?" if nearest else ""
            found.append((name, f"{name} is read by nothing{also}"))
    return found
