"""All settings of the gateway, with defaults, units and limits. Environment names: WEFT_<FIELD>."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict
from weft_run import urls

from weft_gateway import prices, slo, tenants
from weft_gateway.config_runs import RunSettings, split
from weft_gateway.policies.repairs import RULES
from weft_gateway.policies.route import registry as balancers
from weft_gateway.removed_settings import REMOVED

PREFIX: Final = "WEFT_"
# Read by the engine's plugin (docs/internals/engine.md).
_OF_ENGINES: Final = ("WEFT_ENGINE_SETTINGS", "WEFT_ORDER_OPTIONS")
# A variable with such a name is probably meant to restrict access.
_GUARDS: Final = re.compile("KEY|SECRET|TOKEN|PASS|AUTH|CREDENTIAL")


# The order of `Settings`, by task.
GROUPS: Final = {
    "Start and stop": ("host", "port", "redis_url", "drain_s"),
    "Replicas": ("replicas", "replica_api_key", "engine_secret", "model_aliases"),
    "Placing calls": ("balancer", "admission", "program_idle_s"),
    "Keys and clients": (
        "api_keys",
        "slo_file",
        "keys_file",
        "prices_file",
        "admin_key",
        "cors_origins",
        "heartbeat_s",
        "repairs",
    ),
    "Sizes and storage": (
        "max_body_bytes",
        "data_dir",
        "file_bytes_per_tenant",
        "stored_answers_bytes",
    ),
    "Runs over HTTP": tuple(RunSettings.model_fields),
}


class SettingsError(ValueError):
    """Invalid settings. The message names each of them."""


class Settings(RunSettings):
    """The gateway's settings, read first from arguments, then from the environment. Neither `repr`
    nor errors show settings that may contain secrets.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(8080, ge=1, le=65535, description="port to listen on")
    redis_url: str = Field(
        "",
        repr=False,
        description="process table on Redis, which several gateways may share; empty: in memory",
    )
    drain_s: float = Field(
        30.0, ge=0, le=3600, description="maximum time for calls in flight at shutdown, seconds"
    )

    replicas: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="base URLs of the engines, comma-separated, without /v1; `NAME=URL` sets the "
        "replica's name, by default its host, port and path",
    )
    replica_api_key: str = Field("", repr=False, description="bearer token sent to the engines")
    engine_secret: str = Field(
        "", repr=False, description="shared secret for the engines' /weft/* routes"
    )
    model_aliases: Annotated[tuple[tuple[str, str], ...], NoDecode] = Field(
        (),
        description="further names of served models, comma-separated, each `NAME=MODEL`; `*` in a "
        "name is any text, and the first name that matches counts",
    )

    balancer: Annotated[str, AfterValidator(balancers.known)] = Field(
        "locality",
        description="how the gateway selects a replica: locality, round_robin, least_used, work, "
        "soonest, or one that another package registers",
    )
    admission: Literal["auto", "off"] = Field(
        "auto",
        description="whether calls that would evict running programs wait in the gateway; auto: "
        "for vLLM without Weft's plugin",
    )
    program_idle_s: float = Field(
        3600.0, gt=0, description="idle time after which a program ends, seconds"
    )

    api_keys: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        repr=False,
        description="accepted API keys, comma-separated, each of them one tenant; empty: no key is "
        "required, and all clients are one tenant",
    )
    # Before the keys file, whose budgets may be in dollars.
    prices_file: Annotated[str, AfterValidator(prices.check)] = Field(
        "", description="TOML file with the prices of models, for budgets in dollars; empty: none"
    )
    # Before the keys file, which names its classes. An invalid file must fail before anything
    # starts.
    slo_file: Annotated[str, AfterValidator(slo.check)] = Field(
        "", description="YAML file with SLO classes; empty: none"
    )
    keys_file: str = Field(
        "",
        description="TOML file of accepted API keys, with names, weights, limits and SLO classes; "
        "SIGHUP reads it again; empty: none",
    )
    admin_key: str = Field(
        "", repr=False, description="bearer token for /weft/*; empty: loopback clients only"
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="origins of web pages that may call /v1/*, comma-separated; *: any",
    )
    heartbeat_s: float = Field(
        15.0,
        ge=0,
        le=3600,
        description="a stream that is silent for this time gets a keep-alive, and a WebSocket a "
        "ping; 0: none, seconds",
    )
    repairs: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="rules that repair prompts whose beginning clients change from call to call, "
        f"comma-separated: {', '.join(RULES)}; empty: none",
    )

    max_body_bytes: int = Field(
        33_554_432,
        ge=1024,
        le=1_073_741_824,
        description="maximum size of a request's body, bytes; the gateway holds at most 64 times "
        "as many bytes of bodies, and a quarter of them for one API key; beyond it, requests get a "
        "503 or a 429",
    )
    data_dir: str = Field(
        "",
        description="folder of files, batches and runs on a local disk, which the gateways of "
        "a machine may share; empty: `.weft/gateway-PORT` in the working folder",
    )
    file_bytes_per_tenant: int = Field(
        10_737_418_240,
        ge=0,
        description="files of one tenant, with the results of its batches and runs; beyond it, "
        "uploads, new batches and new runs are refused, and runs stop; bytes",
    )
    stored_answers_bytes: int = Field(
        536_870_912,
        ge=0,
        description="stored answers with their input, in a gateway process and on Redis; beyond "
        "it, those used least recently go first; bytes",
    )

    @field_validator("replicas", "api_keys", "cors_origins", "repairs", mode="before")
    @classmethod
    def _comma_separated(cls, value: Any) -> Any:
        return split(value)

    @field_validator("repairs")
    @classmethod
    def _known_repairs(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name not in RULES:
                raise ValueError(f"{name!r} is not one of {', '.join(RULES)}")
        return value

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
            priced = bool(info.data.get("prices_file"))
            tenants.Tenants(value, slos=slo.load(info.data["slo_file"]), priced=priced)
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

    def data_folder(self, port: int) -> str:
        """Return the folder of files, batches and runs of a gateway that listens on `port`."""
        return self.data_dir or f".weft/gateway-{port}"

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
    unknown = [
        f"{name} was removed: {why}" for name, why in REMOVED.items() if os.environ.get(name)
    ]
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
    known += [*_OF_ENGINES, *REMOVED]
    found = []
    for name in variables:
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            nearest = get_close_matches(name.upper(), known, 1)
            also = f"; did you mean {nearest[0]}?" if nearest else ""
            found.append((name, f"{name} is not a known setting{also}"))
    return found
