"""Installation and start of the proxies that `weft bench overhead` and `weft bench agents` compare.

Each peer has a separate environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from weft_bench.stack import gateway
from weft_bench.stack.processes import free_port, running

PEERS_FOLDER: Final = Path(__file__).resolve().parents[3] / ".weft" / "peers"
_INSTALL_S: Final = 900


class Absent(Exception):
    """A peer is not available here. The message says why."""


# Maps the folder of programs, engine URLs, port and a work folder to the command line.
Command = Callable[[Path, Sequence[str], int, Path], list[str]]


@dataclass(frozen=True, slots=True)
class Proxy:
    """One proxy. requirement: for pip; "" needs no installation. ready: path that answers 200."""

    name: str
    requirement: str
    command: Command
    ready: str = "/health"
    environment: dict[str, str] = field(default_factory=dict)


def weft(programs: Path, engines: Sequence[str], port: int, work: Path) -> list[str]:
    """Return the command line of Weft; see Command."""
    replicas = [word for url in engines for word in ("--replica", url)]
    return [sys.executable, "-m", "weft_gateway.cli", "serve", *replicas, "--port", str(port)]


def weft_with(**constants: Any) -> Command:
    """Return the command line of Weft with other constants (`weft_gateway.constants`)."""

    def command(programs: Path, engines: Sequence[str], port: int, work: Path) -> list[str]:
        return gateway.command(constants, engines, port)

    return command


def vllm_router(name: str, policy: str, scheduling: Mapping[str, Any] | None = None) -> Proxy:
    """Return vllm-router with a policy.

    scheduling: its configuration of program scheduling; None turns it off.
    """

    def command(programs: Path, engines: Sequence[str], port: int, work: Path) -> list[str]:
        line = [
            str(programs / "vllm-router"), "--worker-urls", *engines, "--policy", policy,
            "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(port + 1),
        ]  # fmt: skip
        if scheduling is not None:
            line += ["--enable-program-scheduling"]
            line += ["--program-scheduling-config-json", json.dumps(scheduling)]
        return line

    return Proxy(name, "vllm-router==0.1.17", command)


def litellm(name: str, model: str, router_settings: str = "") -> Proxy:
    """Return LiteLLM in front of engines of a model.

    router_settings: further lines of its configuration, indented by two spaces.
    """

    def command(programs: Path, engines: Sequence[str], port: int, work: Path) -> list[str]:
        models = "".join(
            f"  - model_name: {model}\n    litellm_params:\n      model: openai/{model}\n"
            f"      api_base: {url}/v1\n      api_key: none\n"
            for url in engines
        )
        settings = f"router_settings:\n{router_settings}" if router_settings else ""
        config = work / "litellm.yaml"
        config.write_text(f"model_list:\n{models}{settings}")
        return [
            str(programs / "litellm"), "--config", str(config), "--host", "127.0.0.1",
            "--port", str(port),
        ]  # fmt: skip

    # Otherwise LiteLLM downloads a price list.
    local = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return Proxy(name, "litellm[proxy]==1.100.5", command, "/health/liveliness", local)


OURS: Final = Proxy("weft", "", weft)
PEERS: Final = {
    "litellm": litellm("litellm", "mock"),
    "vllm-router": vllm_router(
        "vllm-router",
        "consistent_hash",
        {"global_queue": True, "token_capacity_per_target": 200_000},
    ),
    # Weft without the features that read calls.
    "bare": Proxy(
        "bare",
        "",
        weft_with(lineage=False, tag_prompts=False, auto_prefill=False, receipts=0),
    ),
}


def home(proxy: Proxy) -> Path:
    """Return the folder of a peer's environment."""
    return PEERS_FOLDER / proxy.requirement.replace("[", "-").replace("]", "").replace("==", "-")


def ensure(proxy: Proxy, *, install: bool = True) -> Path:
    """Install a peer if necessary. Returns its folder of programs.

    Raises Absent, also if it is not installed and `install` is false.
    """
    if not proxy.requirement:
        return Path(sys.executable).parent
    folder = home(proxy)
    programs, stamp = folder / "bin", folder / "installed"
    if stamp.is_file():
        return programs
    if not install:
        raise Absent(f"{proxy.requirement} is not installed, and this run does not install peers")
    try:
        venv.create(folder, with_pip=True, clear=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Absent(f"cannot create an environment: {error}") from None
    command = [str(programs / "python"), "-m", "pip", "install", "--quiet", proxy.requirement]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Absent(f"pip took longer than {_INSTALL_S} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise Absent(lines[-1] if lines else "pip failed")
    stamp.touch()
    return programs


def environment(proxy: Proxy) -> dict[str, str]:
    """Return variables for the proxy's process, without Weft's and Python's own. A proxy without an
    environment of its own finds the packages that this process has found.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WEFT_", "PYTHON"))}
    if not proxy.requirement and "PYTHONPATH" in os.environ:
        kept["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return {**kept, **proxy.environment}


@contextmanager
def started(
    proxy: Proxy,
    engines: Sequence[str],
    work: Path,
    *,
    name: str = "",
    install: bool = True,
    wait_s: float = 120.0,
) -> Iterator[tuple[str, int]]:
    """Run a proxy in front of these engines. Yields its URL and its process id.

    work: folder for its files. name: of its log; "" for the proxy's. install: whether to install
    a missing peer. wait_s: time limit for its start. Raises Absent, NotReady or OSError.
    """
    programs = ensure(proxy, install=install)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = proxy.command(programs, engines, port, work)
    log = work / f"{name or proxy.name}.log"
    with running(command, url + proxy.ready, log, environment(proxy), wait_s) as pid:
        yield url, pid


def why_absent(error: Exception) -> str:
    """Return why a peer is absent, in one line."""
    return (str(error).strip() or "no reason").splitlines()[-1]
