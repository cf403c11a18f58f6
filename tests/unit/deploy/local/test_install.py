"""The installer's decisions. That it installs is shown by every run of the tests."""

from __future__ import annotations

import pytest

from deploy.local import install
from deploy.local.install import InstallError


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)])
def test_supported_pythons_are_taken(version):
    install.check_python(version)


@pytest.mark.parametrize("version", [(3, 10), (3, 14)])
def test_other_pythons_are_refused_with_what_to_do(version):
    with pytest.raises(InstallError, match=r"PYTHON="):
        install.check_python(version)


@pytest.mark.parametrize(
    ("system", "machine", "wanted"),
    [
        ("Linux", "x86_64", "torch==2.13.0+cpu"),
        ("Linux", "aarch64", "torch==2.13.0"),
        ("Darwin", "arm64", "torch==2.13.0"),
    ],
)
def test_a_cpu_torch_is_asked_for_where_the_plain_name_means_cuda(system, machine, wanted):
    assert install.torch_requirement(system, machine) == wanted


def test_what_is_installed_follows_the_options():
    assert install.kinds(True, False, False) == ["gateway"]
    assert install.kinds(False, True, False) == ["gateway", "engine-cpu", "test"]
    assert install.kinds(False, False, True) == ["gateway", "engine-gpu"]


def test_the_fingerprint_follows_kind_python_and_lock(tmp_path, monkeypatch):
    before = install.fingerprint("gateway", "3.11.7")
    assert before != install.fingerprint("test", "3.11.7")
    assert before != install.fingerprint("gateway", "3.12.1")
    monkeypatch.setattr(install, "REQUIREMENTS", tmp_path)
    (tmp_path / "gateway.txt").write_text("something-else==1\n")
    assert before != install.fingerprint("gateway", "3.11.7")


def test_locks_hold_no_cuda_no_torch_and_no_addresses():
    for name in ("gateway", "engine-cpu", "test"):
        text = (install.REQUIREMENTS / f"{name}.txt").read_text()
        packages = {line.split("==")[0] for line in text.splitlines() if "==" in line}
        assert packages
        assert not packages & {"torch", "torchvision", "torchaudio", "torchcodec"}
        assert not [p for p in packages if p.startswith("nvidia-")]
        assert "://" not in text


def test_locks_agree_with_each_other():
    pins: dict[str, set[str]] = {}
    for name in ("gateway", "engine-cpu", "test"):
        found: dict[str, set[str]] = {}
        for line in (install.REQUIREMENTS / f"{name}.txt").read_text().splitlines():
            package, _, version = line.split(";")[0].strip().partition("==")
            # A package has several versions where they differ by Python.
            found.setdefault(package, set()).add(version)
        for package, versions in found.items():
            assert pins.setdefault(package, versions) == versions, package


def test_a_foreign_kernels_distribution_is_noticed(tmp_path):
    assert install.foreign_kernels(tmp_path) == ""
    (tmp_path / "kernels-0.9.dist-info").mkdir()
    assert install.foreign_kernels(tmp_path) == "kernels-0.9.dist-info"
