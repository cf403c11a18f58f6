"""Which machines can be measured, and the errors of the others."""

from __future__ import annotations

import subprocess

import pytest
from weft_bench.agents import host
from weft_bench.agents.host import Gpu, HostError, check_engine, check_gpu, parse, read_gpus
from weft_engine.version_check import TESTED_VERSION

ROW = "NVIDIA H100 80GB HBM3, 580.159.04, 81559, 81000, 9.0"
H100 = Gpu("NVIDIA H100 80GB HBM3", "580.159.04", 81_559 * 2**20, 81_000 * 2**20, "9.0")


def test_driver_rows_are_parsed_and_others_skipped():
    assert parse(f"{ROW}\nFailed to initialize NVML\n") == [H100]
    assert parse("") == []


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """A machine with a driver. The fixture returns the folder of devices."""
    monkeypatch.setattr(host.shutil, "which", lambda name: f"/usr/bin/{name}")
    (tmp_path / "nvidia0").touch()
    return tmp_path


def test_gpus_are_those_of_the_driver_that_can_be_opened(driver, monkeypatch):
    asked = []

    def smi(command, **_):
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, ROW, "")

    assert read_gpus(smi, driver) == [H100]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    read_gpus(smi, driver)
    assert asked[-1][-2:] == ["-i", "2"]
    (driver / "nvidia0").unlink()
    assert read_gpus(smi, driver) == []


def test_unresponsive_driver_has_no_gpus(driver):
    def broken(command, **_):
        return subprocess.CompletedProcess(command, 9, "", "no devices")

    def slow(command, **_):
        raise subprocess.TimeoutExpired(command, 1)

    assert read_gpus(broken, driver) == []
    assert read_gpus(slow, driver) == []


def test_a_gpu_with_room_is_taken():
    assert check_gpu([H100], 16 * 2**30) == H100


@pytest.mark.parametrize(
    ("gpus", "weights", "why"),
    [
        ([], 1, "no NVIDIA GPU found"),
        ([Gpu("A", "1", 80 * 2**30, 20 * 2**30)], 1, "20.0 GiB free.* 72.0"),
        ([Gpu("A", "1", 16 * 2**30, 16 * 2**30)], 15 * 2**30, "choose a smaller --shape"),
    ],
)
def test_unsuitable_machine_is_refused_with_the_cause(gpus, weights, why):
    with pytest.raises(HostError, match=why):
        check_gpu(gpus, weights)


def test_an_engine_of_another_release_is_refused(monkeypatch):
    monkeypatch.setattr(host, "installed_version", lambda: "0.31.0")
    with pytest.raises(HostError, match=TESTED_VERSION):
        check_engine()


def test_a_checkout_that_is_only_on_the_path_is_refused(monkeypatch):
    monkeypatch.setattr(host, "installed_version", lambda: TESTED_VERSION)
    monkeypatch.setattr(host, "find_spec", lambda _: object())
    monkeypatch.setattr(host, "entry_points", lambda **_: ())
    with pytest.raises(HostError, match=r"weft_gateway-\*\.dist-info"):
        check_engine()
    monkeypatch.setattr(host, "find_spec", lambda _: None)
    with pytest.raises(HostError, match="path"):
        check_engine()
