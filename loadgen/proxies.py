"""The proxies that `weft bench overhead` compares: how each is installed and started.

A peer lives in an environment of its own, never in ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PEERS_FOLDER: Final = Path(__file__).resolve().parents[1] / ".weft" / "peers"
_INSTALL_S: Final = 900


class Absent(Exception):
    """A peer cannot be had here. The message says why."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """One proxy. requirement: what pip installs ("" for what is here); command: from its folder
    of programs, engine URLs, its port and a folder for files; ready: path that answers 200."""

    name: str
    requirement: str
    command: Callable[[Path, Sequence[str], int, Path], list[str]]
    ready: str = "/health"
    environment: dict[str, str] = field(default_factory=dict)


def _weft(programs: Path, engines: Sequence[str], port: int, work: Path) -> list[str]:
    replicas = [word for url in engines for word in ("--replica", url)]
    return [sys.executable, "-m", "gateway.cli", "serve", *replicas, "--port", str(port)]


def _vllm_router(programs: Path, engines: Sequence[str], port: int, work: Path) -> list[str]:
    scheduling = '{"global_queue":true,"token_capacity_per_target":200000}'
    return [
        str(programs / "vllm-router"), "--worker-urls", *engines, "--policy", "consistent_hash",
        "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(port + 1),
        "--enable-program-scheduling", "--program-scheduling-config-json", scheduling,
    ]  # fmt: skip


def _litellm(programs: Path, engines: Sequence[str], port: int, work: Path) -> list[str]:
    models = "".join(
        f"  - model_name: mock\n    litellm_params:\n      model: openai/mock\n"
        f"      api_base: {url}/v1\n      api_key: none\n"
        for url in engines
    )
    config = work / "litellm.yaml"
    config.write_text(f"model_list:\n{models}")
    return [
        str(programs / "litellm"), "--config", str(config), "--host", "127.0.0.1",
        "--port", str(port),
    ]  # fmt: skip


OURS: Final = Proxy("weft", "", _weft)
PEERS: Final = {
    "litellm": Proxy(
        "litellm",
        "litellm[proxy]==1.100.5",
        _litellm,
        ready="/health/liveliness",
        environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    ),
    "vllm-router": Proxy("vllm-router", "vllm-router==0.1.17", _vllm_router),
    # Ourselves, without what looks into calls.
    "bare": Proxy(
        "bare",
        "",
        _weft,
        environment={
            "WEFT_LINEAGE": "false",
            "WEFT_TAG_PROMPTS": "false",
            "WEFT_AUTO_PREFILL": "false",
            "WEFT_RECEIPTS": "0",
        },
    ),
}


def ensure(proxy: Proxy) -> Path:
    """Install a peer if it is not there. Returns its folder of programs. Raises Absent."""
    if not proxy.requirement:
        return Path(sys.executable).parent
    home = PEERS_FOLDER / proxy.requirement.replace("[", "-").replace("]", "").replace("==", "-")
    programs, stamp = home / "bin", home / "installed"
    if stamp.is_file():
        return programs
    venv.create(home, with_pip=True, clear=True)
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
    """Variables of the proxy's process: none of ours leak into a peer."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WEFT_", "PYTHON"))}
    return {**kept, **proxy.environment}
