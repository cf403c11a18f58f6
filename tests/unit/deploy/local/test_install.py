"""The installer's decisions. Every run of `make test` tests the installation itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from weft_deploy.local import install
from weft_deploy.local.install import InstallError


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)])
def test_supported_pythons_are_accepted(version):
    install.check_python(version)


@pytest.mark.parametrize("version", [(3, 10), (3, 14)])
def test_other_pythons_are_refused_with_advice(version):
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
def test_linux_on_x86_requires_the_cpu_build_of_torch(system, machine, wanted):
    assert install.torch_requirement(system, machine) == wanted


def test_the_options_select_the_locks():
    assert install.kinds(True, False, False) == ["gateway"]
    assert install.kinds(False, True, False) == ["gateway", "engine-cpu", "test"]
    assert install.kinds(False, False, True) == ["gateway", "engine-gpu"]


def test_the_fingerprint_depends_on_kind_python_and_lock(tmp_path, monkeypatch):
    before = install.fingerprint("gateway", "3.11.7")
    assert before != install.fingerprint("test", "3.11.7")
    assert before != install.fingerprint("gateway", "3.12.1")
    monkeypatch.setattr(install, "REQUIREMENTS", tmp_path)
    (tmp_path / "gateway.txt").write_text("something-else==1\n")
    assert before != install.fingerprint("gateway", "3.11.7")


@pytest.mark.parametrize("kind", install.KINDS)
def test_every_kind_has_its_lock(kind):
    assert install.lock(kind).is_file()


def test_an_incomplete_package_is_removed(tmp_path):
    for name, finished in (("whole-1.0", True), ("half-2.0", False)):
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "METADATA").touch()
        if finished:
            (tmp_path / f"{name}.dist-info" / "INSTALLER").touch()
    assert install.discard_unfinished(tmp_path) == ["half-2.0"]
    assert [path.name for path in tmp_path.iterdir()] == ["whole-1.0.dist-info"]
    assert install.discard_unfinished(tmp_path) == []


def test_an_error_of_pip_contains_its_output(tmp_path):
    installer = install.Installer(Path(sys.executable), tmp_path)
    arguments = ("-r", str(tmp_path / "no-such-lock.txt"))
    assert not installer.pip(*arguments, may_fail=True)
    with pytest.raises(InstallError, match="no-such-lock"):
        installer.pip(*arguments)


def test_a_long_step_prints_progress(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(install, "_PROGRESS_S", 0.001)
    (tmp_path / "one-1.0.dist-info").mkdir()
    install.Installer(Path(sys.executable), tmp_path).pip("--help")
    assert "installing; packages so far: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [(InstallError("no disk"), 1, "no disk"), (KeyboardInterrupt(), 130, "run it again")],
)
def test_an_error_is_one_line_and_a_status(raised, status, said, monkeypatch, capsys):
    def fail(*_):
        raise raised

    monkeypatch.setattr(install, "install", fail)
    monkeypatch.setattr(sys, "argv", ["install.py"])
    assert install.main() == status
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    monkeypatch.setattr(install, "install", lambda *_: None)
    assert install.main() == 0
