"""The version guard."""

from __future__ import annotations

import pytest
from weft_engine.version_check import UnsupportedVersion, check_version, installed_version


def test_the_tested_version_is_installed_here():
    if not installed_version():
        pytest.skip("needs vLLM")
    check_version(installed_version())


@pytest.mark.parametrize("found", ["0.31.0", "0.33.0", ""])
def test_another_version_is_refused_with_what_to_do(found):
    with pytest.raises(UnsupportedVersion, match=r"vllm==0\.32\.0"):
        check_version(found)
