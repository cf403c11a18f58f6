"""The contents of the wheel, and its use in a fresh environment.

The tests install real packages from PyPI with pip. If PyPI is unreachable, these tests are skipped
with a reason. Any other failure of pip fails them. The tests of the contents always run.
"""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest
from support.dockerfile import parse
from support.sources import ROOT
from support.waiting import DEADLINE_S, RUN_S
from support.wheel import Environment, build_wheel, clean_environment
from weft_bench.stack.processes import free_port, running

pytestmark = pytest.mark.system

PACKAGES = {
    "weft_run",
    "weft_gateway",
    "weft_engine",
    "weft_kernels",
    "weft_deploy",
}
NEIGHBOURS = ("-r", ROOT / "requirements/neighbours.txt")
# This script imports every module of Weft without an engine.
IMPORT_ALL = f"""
import importlib, pathlib, pkgutil, sys
engine = ("torch", "triton", "vllm")
sys.modules.update(dict.fromkeys(engine))
needs_engine, names = set(), []
for top in {sorted(PACKAGES)}:
    package = importlib.import_module(top)
    assert pathlib.Path(package.__file__).is_relative_to(sys.prefix), package.__file__
    names += [module.name for module in pkgutil.walk_packages(package.__path__, top + ".")]
for name in names:
    if name.endswith(".__main__"):
        continue
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in engine:
            raise
        needs_engine.add(name.partition(".")[0])
assert needs_engine <= {{"weft_engine", "weft_kernels"}}, needs_engine
for name in engine:
    del sys.modules[name]
"""
IMPORT_NEIGHBOURS = """
import kernels, transformers
from kernels import LayerRepository, get_kernel
from transformers import PreTrainedModel
for package in (kernels, transformers):
    assert pathlib.Path(package.__file__).is_relative_to(sys.prefix), package.__file__
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    return ZipFile(wheel).namelist()


def test_the_wheel_installs_only_the_packages_of_weft(names: list[str]) -> None:
    assert {name.partition("/")[0] for name in names} == {*PACKAGES, "weft_gateway-0.1.0.dist-info"}


def test_the_wheel_is_small_and_has_no_results(wheel: Path, names: list[str]) -> None:
    assert wheel.stat().st_size < 1_000_000
    kinds = Counter(Path(name).suffix for name in names if ".dist-info/" not in name)
    data = {".typed", ".lua", ".txt", ".jinja", ".json", ".jsonl", ".yaml"}
    page = {".html", ".css", ".js", ".svg"}
    assert kinds.keys() == {".py"} | data | page
    documents = [name for name in names if name.endswith(".json")]
    assert documents == ["weft_gateway/api/examples.json"]


def serve_one_call(environment: Environment, folder: Path) -> None:
    """Answer one call with `weft serve` of the environment and a canned engine."""
    engine, port = free_port(), free_port()
    script = [str(ROOT / "tests/support/fake_engine.py"), str(engine), str(folder)]
    serve = [str(environment.bin / "weft"), "serve", "--port", str(port)]
    python = str(environment.bin / "python")
    body = {"model": "fake", "messages": [{"role": "user", "content": "Who are you?"}]}
    bare = clean_environment()
    with (
        running(
            [python, *script], f"http://127.0.0.1:{engine}/health", folder / "engine.log", bare
        ),
        running(
            [*serve, "--replica", f"http://127.0.0.1:{engine}"],
            f"http://127.0.0.1:{port}/health",
            folder / "gateway.log",
            bare,
        ),
    ):
        # No supervisor ends the helper of this engine, which ignores SIGTERM.
        (helper,) = re.findall(r"helper ([0-9]+)", (folder / "engine.log").read_text())
        os.kill(int(helper), signal.SIGKILL)
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        answer = httpx.post(url, json=body, trust_env=False, timeout=DEADLINE_S)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "I am fake."


@pytest.fixture(scope="module")
def gateway_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Install the same packages as the gateway's image: its lock file and the wheel."""
    folder = tmp_path_factory.mktemp("gateway")
    environment = Environment(folder / "environment")
    image = build_wheel(folder, parse((ROOT / "Dockerfile").read_text()).sources())
    environment.install("-r", ROOT / "requirements/gateway.txt", image)
    return environment


def test_the_image_of_the_gateway_has_neither_an_engine_nor_the_bench(
    gateway_environment: Environment, tmp_path: Path
) -> None:
    environment = gateway_environment
    installed = {path.name for path in environment.site.iterdir()}
    assert {"weft_run", "weft_gateway"} <= installed
    assert not installed & {"torch", "vllm", "transformers", "numpy", "weft_bench"}
    bench = environment.run("weft", "bench", "peers", folder=tmp_path)
    assert (bench.returncode, bench.stdout) == (2, "")
    assert "No such command 'bench'" in bench.stderr
    assert environment.run("weft", "--help", folder=tmp_path).returncode == 0
    serve_one_call(environment, tmp_path)


USAGE = """
from weft_programs import Hints, Run, Session, Tool, ToolCall, ToolCalls

def blocking(session: Session) -> list[ToolCall]:
    hints: Hints = session.hints()
    hints.set_reuse_priority(1, ttl_s=60)
    calls = session.tool_calls([])
    assert_type(calls, ToolCalls)
    assert_type([call.arguments for call in calls], list[str])
    return list(calls)

async def looping(session: Session, tool: Tool) -> str:
    run = await session.run_tools(model="m", messages=[], tools=[tool], temperature=0)
    assert_type(run, Run)
    assert_type(run.tool_runs[0].call, ToolCall)
    return run.answer

Session("http://127.0.0.1:8080", port=1)
blocking("no session")
"""


@pytest.fixture(scope="module")
def client_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Install the client's distribution, without its dependencies."""
    folder = tmp_path_factory.mktemp("client")
    environment = Environment(folder / "environment")
    environment.install(build_wheel(folder, checkout=ROOT / "gateway/weft_programs"))
    return environment


def test_the_client_is_light(client_environment: Environment) -> None:
    (record,) = client_environment.site.glob("weft_programs-*.dist-info")
    needed = re.findall(r"^Requires-Dist: ([\w-]+)", (record / "METADATA").read_text(), re.M)
    assert needed == ["httpx", "openai"]
    installed = {path.name for path in client_environment.site.iterdir()}
    assert {name for name in installed if "weft" in name} == {"weft_programs", record.name}
    assert "py.typed" in {path.name for path in (record.parent / "weft_programs").iterdir()}


def test_type_checkers_read_the_types_of_the_installed_client(
    client_environment: Environment, tmp_path: Path
) -> None:
    page = (ROOT / "docs/guides/python-client.md").read_text()
    guide = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    assert len(guide) == 3
    files = [tmp_path / f"guide_{number}.py" for number in range(len(guide))]
    for file, text in zip(files, guide, strict=True):
        file.write_text(text)
    usage = tmp_path / "usage.py"
    usage.write_text("from typing import assert_type\n" + USAGE)
    options = ["--strict", "--no-incremental", "--python-executable"]
    # This environment has no `openai`.
    options += [str(client_environment.bin / "python"), "--disable-error-code", "import-not-found"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", os.devnull, *options, usage, *files],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 2, done.stdout
    assert 'Unexpected keyword argument "port"' in errors[0]
    assert 'has incompatible type "str"; expected "Session"' in errors[1]


@pytest.mark.parametrize("weft_first", [True, False], ids=["weft first", "weft last"])
def test_the_wheel_works_with_packages_of_hugging_face(
    weft_first: bool, wheel: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "environment")
    order = [(wheel,), NEIGHBOURS] if weft_first else [NEIGHBOURS, (wheel,)]
    for arguments in order:
        environment.install(*arguments)
    files: Counter[str] = Counter()
    for record in environment.site.glob("*.dist-info/RECORD"):
        files.update(row[0] for row in csv.reader(record.read_text().splitlines()))
    assert not [file for file, owners in files.items() if owners > 1]
    # Dependencies come from the test environment, after the packages of this one.
    (environment.site / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    done = environment.run("python", "-c", IMPORT_ALL + IMPORT_NEIGHBOURS, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    serve_one_call(environment, tmp_path)


def other_weft(folder: Path) -> Path:
    """A wheel of another project that owns the package and the command `weft`, as PyPI's does."""
    wheel, info = folder / "weft-0.9.118-py3-none-any.whl", "weft-0.9.118.dist-info"
    files = {
        "weft/__init__.py": "def main() -> None:\n    print('the other weft')\n",
        "weft/files.py": "",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: weft\nVersion: 0.9.118\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nweft = weft:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


@pytest.mark.parametrize("other_first", [True, False], ids=["other first", "other last"])
def test_the_wheel_lives_beside_another_package_called_weft(
    other_first: bool, wheel: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "environment")
    client = build_wheel(tmp_path / "client", checkout=ROOT / "gateway/weft_programs")
    other = other_weft(tmp_path)
    for one in (other, wheel, client) if other_first else (wheel, client, other):
        environment.install(one)
    (environment.site / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    code = "import weft.files, weft_programs, weft_run, weft_gateway.app; weft.main()"
    done = environment.run("python", "-c", code, folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "the other weft\n"), done.stderr
    ours = environment.run("weft-gateway", "--version", folder=tmp_path)
    assert (ours.returncode, ours.stdout) == (0, "weft 0.1.0\n"), ours.stderr
