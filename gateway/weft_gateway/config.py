"""All settings of the gateway, with defaults, units and limits. Environment names: WEFT_<FIELD>."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict
from weft_run import urls

from weft_gateway import slo, tenants
from weft_gateway.config_batches import BatchSettings, split
from weft_gateway.model.options import Admission
from weft_gateway.policies.route import registry as balancers

PREFIX: Final = "WEFT_"
# Read by the engine's plugin (docs/internals/engine.md).
_OF_ENGINES: Final = ("WEFT_ENGINE_SETTINGS", "WEFT_ORDER_OPTIONS")
_REMOVED: Final = {
    "WEFT_TENANTS_FILE": "WEFT_KEYS_FILE replaces it: [tenants.NAME] is [keys.NAME], and "
    "key_digest is digest. The gateway accepts the keys of this file and of WEFT_API_KEYS only",
    "WEFT_TUNING": "the command `weft tune` replaces it",
}
# A variable with such a name is probably meant to restrict access.
_GUARDS: Final = re.compile("KEY|SECRET|TOKEN|PASS|AUTH|CREDENTIAL")


class SettingsError(ValueError):
    """Invalid settings. The message names each of them."""


class Settings(BatchSettings):
    """The gateway's settings, read first from arguments, then from the environment. Neither `repr`
    nor errors show settings that may contain secrets.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(8080, ge=1, le=65535, description="port to listen on")
    replicas: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="base URLs of the engines, comma-separated, without /v1; `NAME=URL` sets the "
        "replica's name, by default its host, port and path",
    )
    replica_api_key: str = Field("", repr=False, description="bearer token sent to the engines")
    model_aliases: Annotated[tuple[tuple[str, str], ...], NoDecode] = Field(
        (),
        description="further names of served models, comma-separated, each `NAME=MODEL`; `*` in a "
        "name is any text, and the first name that matches counts",
    )
    redis_url: str = Field("", repr=False, description="process table on Redis; empty: in memory")
    redis_prefix: str = Field(
        "weft",
        min_length=1,
        max_length=64,
        pattern=r"^[^{}]*$",
        description="key prefix on Redis, without braces",
    )
    redis_timeout_s: float = Field(
        1.0,
        ge=0.05,
        le=60,
        description="Redis reply timeout; after it, local mode is used, seconds",
    )
    call_lease_s: float = Field(
        120.0, ge=1, description="call lease; unrenewed calls are closed, seconds"
    )
    balancer: Annotated[str, AfterValidator(balancers.known)] = Field(
        "locality",
        description="how the gateway selects a replica: locality, round_robin, least_used, work, "
        "soonest, or one that another package registers",
    )
    balancer_alpha: float = Field(
        0.0, ge=0, le=1, description="alpha of the balancer `work` at first"
    )
    locality_threshold_tokens: int = Field(
        2048, ge=0, description="longer prompts go to their program's home (Agentix 4.3), tokens"
    )
    replica_cache_tokens: int = Field(
        131_072,
        ge=0,
        le=100_000_000,
        description="prefix cache size of replicas that do not report it, used to place new "
        "programs, tokens; 0: none",
    )
    admission: Admission = Field(
        Admission.AUTO,
        description="whether calls that would evict running programs wait in the gateway; auto: "
        "for vLLM without Weft's plugin",
    )
    admission_wait_s: float = Field(
        45.0, gt=0, le=3600, description="maximum wait of a call for KV memory, seconds"
    )
    api_keys: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        repr=False,
        description="accepted API keys, comma-separated, each of them one tenant; empty: no key is "
        "required, and all clients are one tenant",
    )
    # An invalid file must fail before anything starts.
    slo_file: Annotated[str, AfterValidator(slo.check)] = Field(
        "", description="YAML file with SLO classes; empty: none"
    )
    keys_file: str = Field(
        "",
        description="TOML file of accepted API keys, with names, weights, limits and SLO classes; "
        "SIGHUP reads it again; empty: none",
    )
    requests_per_minute: tenants.Limit = Field(
        0, description="requests per minute per API key; 0: no limit"
    )
    tokens_per_minute: tenants.Limit = Field(
        0, description="prompt and output tokens per minute per API key; 0: no limit"
    )
    calls_in_flight: tenants.Limit = Field(
        0, description="concurrent calls per API key; 0: no limit"
    )
    admin_key: str = Field(
        "", repr=False, description="bearer token for /weft/*; empty: loopback clients only"
    )
    admin_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="additional host names that accept /weft/* requests without an admin key, "
        "comma-separated",
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="origins of web pages that may call /v1/*, comma-separated; *: any",
    )
    traceparent_programs: bool = Field(False, description="W3C trace ids identify programs")
    max_body_bytes: int = Field(
        33_554_432, ge=1024, le=1_073_741_824, description="maximum request body size, bytes"
    )
    body_bytes: int = Field(
        2_147_483_648,
        ge=1_048_576,
        description="maximum size of all request bodies and WebSocket messages above 64 KiB that "
        "the gateway holds, bytes; further ones get a 503, or a 429 beyond a quarter per API key",
    )
    read_body_bytes: int = Field(
        4_194_304,
        ge=65_536,
        le=67_108_864,
        description="larger bodies are forwarded without analysis: no lineage, no tags; bytes",
    )
    read_body_messages: int = Field(
        2048,
        ge=1,
        le=65_536,
        description="bodies with more messages and message parts are forwarded without analysis",
    )
    max_head_bytes: int = Field(
        65_536, ge=4096, le=1_048_576, description="maximum request head size, bytes"
    )
    max_headers: int = Field(128, ge=16, le=10_000, description="maximum headers per request")
    head_timeout_s: float = Field(
        20.0, gt=0, le=3600, description="timeout for receiving a request's head, seconds"
    )
    body_timeout_s: float = Field(
        120.0,
        gt=0,
        le=3600,
        description="timeout for receiving a request's body; it begins again while at least "
        "16 KiB per second arrive, seconds",
    )
    send_timeout_s: float = Field(
        30.0,
        gt=0,
        le=3600,
        description="a client that does not read its answer for this time is disconnected, seconds",
    )
    # Agents think and call tools between calls: if the connection closes meanwhile, the next call
    # costs a failed request or a new handshake.
    keep_alive_s: float = Field(
        75.0, gt=0, le=3600, description="idle timeout of client connections, seconds"
    )
    heartbeat_s: float = Field(
        15.0,
        ge=0,
        le=3600,
        description="a stream that is silent for this time gets a keep-alive, and a WebSocket a "
        "ping; 0: none, seconds",
    )
    max_connections: int = Field(
        4096,
        ge=1,
        le=1_000_000,
        description="maximum client connections; at the limit, a new one closes an idle one "
        "or gets a 503",
    )
    max_connections_per_key: int = Field(
        1024,
        ge=1,
        le=1_000_000,
        description="connections with a request in progress, and open WebSockets, of one API key; "
        "further ones get a 429",
    )
    websocket_idle_s: float = Field(
        900.0,
        gt=0,
        le=86_400,
        description="a WebSocket is closed after this long without a message from its client "
        "or an answer to it, seconds",
    )
    websockets_per_tenant: int = Field(
        256, ge=1, le=100_000, description="maximum open WebSockets per tenant and gateway process"
    )
    websocket_message_bytes: int = Field(
        8_388_608,
        ge=1024,
        le=1_073_741_824,
        description="maximum WebSocket message size, bytes; WEFT_MAX_BODY_BYTES also applies",
    )
    connect_timeout_s: float = Field(
        5.0, gt=0, le=300, description="timeout for connecting to a replica, seconds"
    )
    attempts_per_call: int = Field(
        3,
        ge=1,
        le=100,
        description="maximum replicas tried per request, while none has read a byte of it",
    )
    retry_budget: float = Field(
        0.1, ge=0, le=1, description="maximum share of requests that are retried; 0: no retries"
    )
    first_byte_timeout_s: float = Field(
        900.0, gt=0, description="timeout for the first byte of a replica's answer, seconds"
    )
    idle_timeout_s: float = Field(
        120.0, gt=0, description="timeout between bytes of a replica's answer, seconds"
    )
    lost_after_s: float = Field(
        5.0,
        ge=0,
        le=3600,
        description="time from a replica's refusal of connections until its open calls fail, "
        "unless bytes still arrive, seconds; set it above the time that engines take to drain",
    )
    max_answer_bytes: int = Field(
        268_435_456,
        ge=1024,
        le=17_179_869_184,
        description="maximum size of a replica's non-streamed answer, bytes",
    )
    health_interval_s: float = Field(
        2.0, gt=0, le=300, description="interval between health checks, seconds"
    )
    program_idle_s: float = Field(
        3600.0, gt=0, description="idle time after which a program ends, seconds"
    )
    max_programs_per_tenant: int = Field(
        100_000,
        ge=1,
        le=10_000_000,
        description="maximum named programs per tenant; a new one evicts the least recently active",
    )
    lineage: bool = Field(
        True, description="calls without a key are assigned to programs by their content"
    )
    tag_prompts: bool = Field(True, description="engines receive tags for each prompt's sections")
    auto_prefill: bool = Field(
        True, description="prefill next turns while tools run, where measurements show a benefit"
    )
    receipts: int = Field(
        4096,
        ge=0,
        le=1_000_000,
        description="maximum stored receipts, shared fairly by tenants; 0: none",
    )
    receipts_age_s: float = Field(3600.0, gt=0, description="maximum age of receipts, seconds")
    prefills_per_tenant: int = Field(
        256, ge=1, le=65_536, description="maximum open prefills per tenant and gateway"
    )
    prefills: int = Field(
        8192,
        ge=1,
        le=1_000_000,
        description="maximum open prefills per gateway, shared fairly by tenants",
    )
    listeners_per_session: int = Field(
        64, ge=1, le=65_536, description="maximum event streams per session and gateway"
    )
    listeners_per_tenant: int = Field(
        256, ge=1, le=65_536, description="maximum event streams per tenant and gateway"
    )
    listeners: int = Field(
        4096,
        ge=1,
        le=1_000_000,
        description="maximum event streams per gateway, shared fairly by tenants",
    )
    answer_keep_s: float = Field(
        86_400.0,
        gt=0,
        description="lifetime of stored answers (Responses API) after their last use, seconds",
    )
    stored_answers_bytes: int = Field(
        536_870_912,
        ge=0,
        description="stored answers with their input, in a gateway process and on Redis, bytes; "
        "beyond it, the tenant with most bytes loses those used least recently",
    )
    engine_secret: str = Field(
        "", repr=False, description="shared secret for the engines' /weft/* routes"
    )
    drain_s: float = Field(
        30.0, ge=0, le=3600, description="maximum time for calls in flight at shutdown, seconds"
    )
    retry_after_s: int = Field(
        2, ge=1, le=3600, description="Retry-After of refusals that a retry may avoid, seconds"
    )

    @field_validator("replicas", "api_keys", "admin_hosts", "cors_origins", mode="before")
    @classmethod
    def _comma_separated(cls, value: Any) -> Any:
        return split(value)

    @field_validator("model_aliases", mode="before")
    @classmethod
    def _aliases(cls, value: Any) -> Any:
        found = [] if isinstance(value, str) else value
        for text in split(value) if isinstance(value, str) else ():
            name, _, model = (part.strip() for part in text.partition("="))
            if not (name and model):
                raise ValueError(f"{text!r} is not NAME=MODEL")
            found.append((name, model))
        return found

    @field_validator("keys_file")
    @classmethod
    def _keys_file(cls, value: str, info: ValidationInfo) -> str:
        if "slo_file" in info.data:
            tenants.Tenants(value, slos=slo.load(info.data["slo_file"]))
        return value

    @field_validator("replicas")
    @classmethod
    def _replicas(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        named = [urls.named_replica(text) for text in value]
        if len({urls.address(url) for _, url in named}) != len(named):
            raise ValueError("the same replica is listed twice")
        names = [name for name, _ in named]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two replicas have the name {name}: rename one with NAME=URL")
        return tuple(
            f"{name}={url}" if urls.named_replica(url)[0] != name else url for name, url in named
        )

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
            if key:
                tenants.checked_key(key)
        return value

    @property
    def needs_keys(self) -> bool:
        """Whether calls need an API key."""
        return bool(self.api_keys or self.keys_file)

    @property
    def base_url(self) -> str:
        """The gateway's URL for clients on this machine, without /v1."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def replica_urls(self) -> dict[str, str]:
        """The replicas' base URLs by name, in their order."""
        return dict(map(urls.named_replica, self.replicas))


def load(**overrides: Any) -> Settings:
    """Load settings from `overrides` (None: not given) and the environment.

    Raises SettingsError with one line per invalid setting, which names it and its variable. Also
    raises it for an unknown variable that looks like a Weft key: the access that it should restrict
    would be open.
    """
    unknown = [f"{name}: {why}" for name, why in _REMOVED.items() if os.environ.get(name)]
    unknown += [line for name, line in _unknown(os.environ) if _GUARDS.search(name.upper())]
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
            # The project's validators already include the value where it is safe.
            if item["type"] != "value_error" and (field is None or field.repr):
                what += f"; got {item['input']!r}"
            lines.append(f"{name} ({PREFIX}{name.upper()}): {what}")
        raise SettingsError("\n".join(lines)) from None


def unread(variables: Iterable[str]) -> list[str]:
    """Return a warning for each variable that looks like a Weft setting but is unknown, with the
    closest known name.
    """
    return [line for _, line in _unknown(variables)]


def exposed(settings: Settings) -> list[str]:
    """Return a warning if other machines can reach the gateway and no API key is required."""
    if settings.needs_keys or urls.is_loopback(settings.host):
        return []
    return [
        f"ANYONE who reaches {settings.host}:{settings.port} can use every model: no API keys are "
        f"set. Set {PREFIX}API_KEYS, or listen on 127.0.0.1"
    ]


def _unknown(variables: Iterable[str]) -> list[tuple[str, str]]:
    """Return the unknown variables that look like Weft settings, each with its message."""
    known = [f"{PREFIX}{name.upper()}" for name in Settings.model_fields]
    known += [*_OF_ENGINES, *_REMOVED]
    found = []
    for name in variables:
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            nearest = get_close_matches(name.upper(), known, 1)
            also = f"; did you mean {nearest[0]}?" if nearest else ""
            found.append((name, f"{name} is not a known setting{also}"))
    return found
