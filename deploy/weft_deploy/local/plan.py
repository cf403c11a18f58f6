"""What `weft up` starts: commands and variables, from the options. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from weft_engine.orders import ORDERS
from weft_gateway.config import Settings, SettingsError, exposed, load, unread

from weft_deploy.local.demo_model import SERVED_NAME

_WEFT: Final = (sys.executable, "-m", "weft_gateway.cli")
# Coding agents begin with prompts of 10,000 to 40,000 of the demo model's tokens and ask for
# answers of several thousand.
_DEMO_CONTEXT: Final = 49_152
# Of an engine on the CPU (`weft_engine.launch`).
_BLOCK_TOKENS: Final = 32
# The grammar for tools is enforced: the demo model does not write valid arguments by itself.
_DEMO_ARGUMENTS: Final = (
    "--enable-auto-tool-choice",
    "--tool-call-parser", "hermes",
    "--tool-strict-level", "parameter",
)  # fmt: skip


class OptionError(ValueError):
    """Options of `weft up` are wrong; the message names them, each in a line."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The options of `weft up`. model "" is the demo model; attach: engines that run already;
    engine_arguments: given to every engine, after ours."""

    replicas: int = 2
    model: str = ""
    attach: tuple[str, ...] = ()
    redis_url: str = ""
    policy: str = "warm_plas"
    balancer: str = "locality"
    host: str = "127.0.0.1"
    port: int = 8080
    engine_arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """One process to start, and the URL that answers 200 when it is ready."""

    name: str
    command: tuple[str, ...]
    ready_url: str
    environment: dict[str, str] = field(default_factory=dict)


def check(options: UpOptions) -> str:
    """Raise OptionError if the options cannot be carried out. Returns the URL of the process
    table's Redis, from the options or the environment; "" for a table in memory."""
    if options.policy not in ORDERS:
        raise OptionError(
            f"--policy {options.policy}: unknown; known are {', '.join(sorted(ORDERS))}"
        )
    # As the gateway will: what it would refuse after the engines' start is refused before.
    return _settings(options).redis_url


def warnings(options: UpOptions, variables: Iterable[str]) -> list[str]:
    """What is odd about these environment variables, and dangerous about the options, each in a
    line. OptionError as `check`."""
    return [*unread(variables), *exposed(_settings(options))]


def _settings(options: UpOptions) -> Settings:
    """The gateway's settings. OptionError."""
    try:
        return load(
            replicas=",".join(options.attach) or None,
            redis_url=options.redis_url or None,
            balancer=options.balancer,
            host=options.host,
            port=options.port,
        )
    except SettingsError as error:
        raise OptionError(str(error)) from None


def attached(options: UpOptions) -> list[str]:
    """The base URLs of engines that run already, without the names that they may have."""
    # Without any, `load` would take what the environment names.
    return list(load(replicas=",".join(options.attach)).replica_urls.values())


def replica(
    options: UpOptions, number: int, port: int, model: Path | str, secret: str, gpus: int
) -> Start:
    """One engine. `gpus`: devices on this machine; engines share them in turn."""
    demo = not options.model
    command = [
        *_WEFT, "replica", "--model", str(model), "--host", "127.0.0.1", "--port", str(port),
        "--policy", options.policy,
    ]  # fmt: skip
    environment = {"WEFT_ENGINE_SECRET": secret, "VLLM_NO_USAGE_STATS": "1"}
    if demo:
        command += ("--served-model-name", SERVED_NAME)
        command += ("--max-model-len", str(_demo_context(options)), *_DEMO_ARGUMENTS)
        environment["HF_HUB_OFFLINE"] = "1"
    if gpus:
        sharing = -(-options.replicas // gpus)
        environment["CUDA_VISIBLE_DEVICES"] = str(number % gpus)
        if sharing > 1:
            command += ["--gpu-memory-utilization", f"{0.9 / sharing:.2f}"]
    command += options.engine_arguments
    return Start(
        f"replica-{number}", tuple(command), f"http://127.0.0.1:{port}/health", environment
    )


def _demo_context(options: UpOptions) -> int:
    """The demo model's context, tokens. vLLM starts only if the KV cache holds one context beside
    the block that it keeps for itself."""
    given = options.engine_arguments
    for name, value in pairwise(given):
        if name == "--num-gpu-blocks-override" and value.isdecimal():
            return max(_BLOCK_TOKENS, min(_DEMO_CONTEXT, (int(value) - 1) * _BLOCK_TOKENS))
    return _DEMO_CONTEXT


def gateway(options: UpOptions, urls: Sequence[str], secret: str) -> Start:
    """The gateway in front of the engines."""
    command = [*_WEFT, "serve", "--host", options.host, "--port", str(options.port)]
    command += ["--balancer", options.balancer]
    for url in urls:
        command += ["--replica", url]
    environment = {"WEFT_ENGINE_SECRET": secret} if secret else {}
    if options.redis_url:
        # It may hold a password, and arguments show in the list of processes.
        environment["WEFT_REDIS_URL"] = options.redis_url
    return Start("gateway", tuple(command), f"{base_url(options)}/ready", environment)


def base_url(options: UpOptions) -> str:
    """Where the gateway can be reached from this machine."""
    host = "127.0.0.1" if options.host in ("0.0.0.0", "::") else options.host
    return f"http://[{host}]:{options.port}" if ":" in host else f"http://{host}:{options.port}"
