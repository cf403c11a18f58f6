"""Settings and hooks for all tests."""

import sys

import pytest
from hypothesis import settings
from support.recorder import Recorder

# Tests do not depend on wall-clock time, because the machine may be busy.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


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
