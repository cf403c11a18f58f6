"""The version guard."""

from __future__ import annotations

import pytest

compat = pytest.importorskip("engine_patches.compat", exc_type=ImportError)


def test_the_tested_version_is_installed_here():
    compat.check_version(compat.installed_version())


@pytest.mark.parametrize("found", ["0.31.0", "0.33.0", ""])
def test_another_version_is_refused_with_what_to_do(found):
    with pytest.raises(compat.UnsupportedVersion, match=r"vllm==0\.32\.0"):
        compat.check_version(found)


def test_a_foreign_package_named_kernels_is_warned_of(tmp_path, monkeypatch):
    assert compat.warn_of_kernels_package() == ""
    info = tmp_path / "kernels-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "pip uninstall kernels" in compat.warn_of_kernels_package()
