"""Makes `.venv` with everything that `weft` needs, from the locks. Standard library only.

    python3 deploy/local/install.py [--with-test] [--gateway-only]

Nothing is resolved here: the locks in `requirements/` name every package, and each is installed
without its dependencies. That also keeps torchvision, torchaudio and torchcodec away, whose builds
do not match a CPU torch. torch itself comes from pip's own sources if they have a CPU build, else
from PyTorch's CPU index.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
VENV: Final = ROOT / ".venv"
REQUIREMENTS: Final = ROOT / "requirements"
OLDEST: Final = (3, 11)
NEWEST: Final = (3, 13)
TORCH: Final = "2.13.0"
TORCH_INDEX: Final = "https://download.pytorch.org/whl/cpu"
VLLM_GPU: Final = "vllm==0.32.0"
STAMP: Final = VENV / "weft-installed.txt"
ENGINES: Final = ("engine-cpu", "engine-gpu")


class InstallError(Exception):
    """The environment cannot be made. The message says why and what to do."""


def check_python(found: tuple[int, int]) -> None:
    """Raise InstallError unless this Python can run Weft."""
    if not OLDEST <= found <= NEWEST:
        raise InstallError(
            f"Python {found[0]}.{found[1]} found; Weft runs on 3.11 to 3.13. "
            "Name another one: make PYTHON=python3.12 ..."
        )


def torch_requirement(system: str, machine: str) -> str:
    """The CPU build of torch for a machine. Only on x86-64 Linux does the plain name mean CUDA."""
    cuda_by_default = system == "Linux" and machine in ("x86_64", "AMD64")
    return f"torch=={TORCH}+cpu" if cuda_by_default else f"torch=={TORCH}"


def fingerprint(kind: str, version: str) -> str:
    """Changes whenever what is installed of a kind is not what would be installed now."""
    digest = hashlib.sha256(f"{kind}\n{version}\n".encode())
    for file in (*_locks(kind), ROOT / "pyproject.toml", Path(__file__)):
        digest.update(file.read_bytes())
    return f"{kind}:{digest.hexdigest()}"


def kinds(gateway_only: bool, with_test: bool, gpu: bool) -> list[str]:
    """What is to be installed, in this order."""
    engine = [] if gateway_only else ["engine-gpu" if gpu else "engine-cpu"]
    return ["gateway", *engine, *(["test"] if with_test else [])]


def has_gpu() -> bool:
    """Whether an NVIDIA device is there."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def foreign_kernels(site: Path) -> str:
    """The name of an installed distribution called `kernels`, which hides ours; "" if none."""
    return next((path.name for path in site.glob("kernels-*.dist-info")), "")


class Installer:
    """Runs the steps and says what it does."""

    def __init__(self, python: Path) -> None:
        self._python = python
        self._begun = time.monotonic()

    def say(self, text: str) -> None:
        """One line of progress."""
        print(f"[{time.monotonic() - self._begun:5.1f} s] {text}", flush=True)

    def pip(self, *arguments: str, dependencies: bool = False, quiet_failure: bool = False) -> bool:
        """Install with pip. Returns whether it worked; raises unless `quiet_failure`."""
        command = [str(self._python), "-m", "pip", "install", "--quiet", *arguments]
        command += ["--disable-pip-version-check", *([] if dependencies else ["--no-deps"])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return True
        if quiet_failure:
            return False
        raise InstallError(f"pip failed:\n{(done.stderr or done.stdout).strip()[-2000:]}")

    def torch(self) -> None:
        """The CPU build, from wherever it is."""
        wanted = torch_requirement(platform.system(), platform.machine())
        self.say(f"{wanted}: asking pip's own sources")
        if not self.pip(wanted, quiet_failure=True):
            self.say(f"{wanted}: not there; from {TORCH_INDEX}")
            self.pip("--extra-index-url", TORCH_INDEX, wanted)


def install(gateway_only: bool, with_test: bool) -> None:
    """Make or repair the environment. Does nothing when all is there. Raises InstallError."""
    check_python(sys.version_info[:2])
    wanted = kinds(gateway_only, with_test, has_gpu())
    python = VENV / "bin" / "python"
    version = platform.python_version()
    have = set(STAMP.read_text().split()) if STAMP.is_file() and python.is_file() else set()
    missing = [kind for kind in wanted if fingerprint(kind, version) not in have]
    if not missing:
        return
    installer = Installer(python)
    if not _runs(python, version):
        installer.say(f"making {VENV.name} with Python {version}")
        venv.create(VENV, with_pip=True, clear=True)
        have, missing = set(), wanted
    # Gone until all is well again, so that an interrupted run is repaired by the next one.
    STAMP.unlink(missing_ok=True)
    for kind in missing:
        if kind == "engine-cpu":
            installer.torch()
        if kind == "engine-gpu":
            installer.say(f"{VLLM_GPU} with all that it needs (an NVIDIA GPU is here)")
            installer.pip(VLLM_GPU, dependencies=True)
        for lock in _locks(kind):
            installer.say(f"{lock.relative_to(ROOT)}")
            installer.pip("-r", str(lock))
    installer.say("weft itself")
    installer.pip("--no-build-isolation", "--editable", str(ROOT))
    site = next((VENV / "lib").glob("python3.*")) / "site-packages"
    foreign = foreign_kernels(site)
    if foreign:
        installer.say(f"warning: {foreign} hides Weft's folder of that name; pip uninstall kernels")
    current = {fingerprint(kind, version) for kind in ("gateway", *ENGINES, "test")} & have
    partial = STAMP.with_suffix(".partial")
    lines = sorted(current | {fingerprint(kind, version) for kind in wanted})
    partial.write_text("\n".join(lines) + "\n")
    partial.replace(STAMP)
    installer.say("done")


def _runs(python: Path, version: str) -> bool:
    """Whether the environment's Python starts, has pip, and is the one that runs this."""
    question = "import pip, platform; print(platform.python_version())"
    try:
        done = subprocess.run([python, "-c", question], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def _locks(kind: str) -> list[Path]:
    return [] if kind == "engine-gpu" else [REQUIREMENTS / f"{kind}.txt"]


def main() -> int:
    """Parse the options and install. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Make .venv with what Weft needs.")
    parser.add_argument("--gateway-only", action="store_true", help="without an engine")
    parser.add_argument("--with-test", action="store_true", help="with what the tests need")
    options = parser.parse_args()
    try:
        install(options.gateway_only, options.with_test)
    except InstallError as error:
        print(f"weft: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
