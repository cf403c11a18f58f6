"""Plans the processes of `weft up`: commands and variables, from the options. Pure."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from weft_engine.emulated.launch import check as check_engine
from weft_engine.orders import order_names
from weft_gateway.config import Settings as Settings
from weft_gateway.config import SettingsError, load

from weft_deploy.local.demo_model import SERVED_NAME

_WEFT: Final = (sys.executable, "-m", "weft_gateway.cli")
# The first prompts of coding agents have 10,000 to 40,000 tokens of the demo model, and their
# answers have several thousand.
_DEMO_CONTEXT: Final = 49_152
# Block size of an engine on a CPU (`weft_engine.launch`).
_BLOCK_TOKENS: Final = 32
# The KV blocks of an engine with played programs: so few that some of 200 wait for memory.
_DEMO_BLOCKS: Final = 6000
# The engine enforces the grammar of tools, because the demo model writes random arguments.
_DEMO_ARGUMENTS: Final = ("--tool-strict-level", "parameter")


class OptionError(ValueError):
    """Options of `weft up` are invalid. The message has one line for each of them."""


@dataclass(frozen=True, slots=True)
class Emulated:
    """Options of emulated engines, as of `weft replica`. presets: comma-separated, repeated in turn
    for the engines."""

    presets: str = "8b-a100"
    dilate: float = 1.0
    scheduler: str = "weft"

    def options(self, number: int) -> list[str]:
        """Return the options of one engine."""
        presets = [name.strip() for name in self.presets.split(",")]
        return [
            "--emulated", "--preset", presets[number % len(presets)],
            "--dilate", f"{self.dilate:g}", "--scheduler", self.scheduler,
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The options of `weft up`.

    model: "" means the demo model. attach: URLs of running engines. engine_arguments: added to the
    arguments of every engine. emulated: None for engines with a model. demo: programs to play.
    """

    replicas: int = 2
    model: str = ""
    attach: tuple[str, ...] = ()
    redis_url: str = ""
    policy: str = "resident"
    balancer: str = "locality"
    host: str = "127.0.0.1"
    port: int = 8080
    slo: str = ""
    keys: str = ""
    engine_arguments: tuple[str, ...] = ()
    emulated: Emulated | None = None
    demo: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """A process to start. ready_url: answers with status 200 once the process is ready."""

    name: str
    command: tuple[str, ...]
    ready_url: str
    environment: dict[str, str] = field(default_factory=dict)


def check(options: UpOptions) -> Settings:
    """Return the gateway's settings, from the options and the environment. Raise OptionError if the
    options are invalid.
    """
    known = order_names()
    if options.policy not in known:
        raise OptionError(f"--policy {options.policy} is unknown; use one of {', '.join(known)}")
    if emulated := options.emulated:
        try:
            for preset in emulated.presets.split(","):
                check_engine(preset.strip(), emulated.dilate, emulated.scheduler)
        except ValueError as error:
            raise OptionError(str(error)) from None
    # The gateway would refuse invalid settings too, but only after the engines have started.
    return _settings(options)


def _settings(options: UpOptions) -> Settings:
    """Return the gateway's settings. Raise OptionError if they are invalid."""
    try:
        return load(
            replicas=",".join(options.attach) or None,
            redis_url=options.redis_url or None,
            balancer=options.balancer,
            host=options.host,
            port=options.port,
            slo_file=options.slo or None,
            keys_file=options.keys or None,
        )
    except SettingsError as error:
        raise OptionError(str(error)) from None


def replica(
    options: UpOptions, number: int, port: int, model: Path | str, secret: str, gpus: int
) -> Start:
    """Plan one engine. gpus: number of GPUs of this machine; engines are spread over them."""
    demo = not options.model
    command = [
        *_WEFT, "replica", "--model", str(model), "--host", "127.0.0.1", "--port", str(port),
        "--policy", options.policy,
    ]  # fmt: skip
    environment = {"WEFT_ENGINE_SECRET": secret, "VLLM_NO_USAGE_STATS": "1"}
    if options.emulated is not None:
        command += options.emulated.options(number)
    elif demo:
        command += ("--served-model-name", SERVED_NAME)
        command += ("--max-model-len", str(_demo_context(options)))
    if demo:
        command += _DEMO_ARGUMENTS
        environment["HF_HUB_OFFLINE"] = "1"
    if gpus and options.emulated is None:
        sharing = -(-options.replicas // gpus)
        environment["CUDA_VISIBLE_DEVICES"] = str(number % gpus)
        if sharing > 1:
            command += ["--gpu-memory-utilization", f"{0.9 / sharing:.2f}"]
    if options.demo:
        command += ("--num-gpu-blocks-override", str(_DEMO_BLOCKS))
    command += options.engine_arguments
    return Start(
        f"replica-{number}", tuple(command), f"http://127.0.0.1:{port}/health", environment
    )


def _demo_context(options: UpOptions) -> int:
    """Return the context length of the demo model.

    vLLM starts only if the KV cache holds one context and the block that vLLM reserves.
    """
    given = options.engine_arguments
    for name, value in pairwise(given):
        if name == "--num-gpu-blocks-override" and value.isdecimal():
            return max(_BLOCK_TOKENS, min(_DEMO_CONTEXT, (int(value) - 1) * _BLOCK_TOKENS))
    return _DEMO_CONTEXT


def gateway(
    options: UpOptions, urls: Sequence[str], secret: str, keys: Sequence[str] = ()
) -> Start:
    """Plan the gateway in front of the engines. keys: API keys to accept."""
    command = [*_WEFT, "serve", "--host", options.host, "--port", str(options.port)]
    command += ["--balancer", options.balancer]
    for url in urls:
        command += ["--replica", url]
    if options.slo:
        command += ["--slo", options.slo]
    if options.keys:
        command += ["--keys", options.keys]
    environment = {"WEFT_ENGINE_SECRET": secret} if secret else {}
    if keys:
        environment["WEFT_API_KEYS"] = ",".join(keys)
    if options.redis_url:
        # The URL may contain a password, and the process list shows arguments.
        environment["WEFT_REDIS_URL"] = options.redis_url
    return Start("gateway", tuple(command), f"{_settings(options).base_url}/ready", environment)


def programs(url: str, model: str, count: int, key: str) -> Start:
    """Plan the process that plays programs. key: an accepted API key, "" if none is required."""
    command = (sys.executable, "-m", "weft_deploy.local.programs", url, model, str(count))
    return Start("programs", command, f"{url}/ready", {"DEMO_PROGRAMS_KEY": key} if key else {})
