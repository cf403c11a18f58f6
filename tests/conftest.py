"""Settings and hooks for all tests."""

import sys
from pathlib import Path

import pytest
from hypothesis import settings
from support.recorder import Recorder

# Tests do not depend on wall-clock time, because the machine may be busy.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


# Tests in this folder share one stack of real engines. A second process would start another one.
_ONE_STACK = Path(__file__).parent / "system" / "real"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep tests that share costly fixtures in one process (`pytest -n 2 --dist loadgroup`).

    xdist reads the groups in `pytest_collection_modifyitems`, before a conftest can set them there.
    """
    shared = _ONE_STACK if _ONE_STACK in item.path.parents else item.path
    item.add_marker(pytest.mark.xdist_group(str(shared)))


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the gateway does."""
    return "asyncio"


@pytest.fixture
def recorder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Replaces the module that `request.param` names."""
    module = Recorder(request.param)
    monkeypatch.setitem(sys.modules, request.param, module)
    return module
