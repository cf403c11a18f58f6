"""Settings and hooks for all tests."""

import functools
import gc
import ssl
import sys
from typing import Any

import httpx
import pytest
from hypothesis import settings
from support import scheduling
from support.recorder import Recorder
from support.waiting import DEADLINE_S

# Every httpx client makes a context, which reads all certificates.
ssl.create_default_context = functools.cache(ssl.create_default_context)

# Tests do not depend on wall-clock time, because the machine may be busy. The limits of hypothesis
# and httpx are 0.2 s and 5 s.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
httpx._config.DEFAULT_TIMEOUT_CONFIG.__init__(DEADLINE_S)  # type: ignore[misc]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Divide the tests among parallel processes."""
    return scheduling.Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In parallel processes, start with the longest tests."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: scheduling.rank(item.nodeid))


def pytest_collection_finish() -> None:
    """Keep the garbage collector off the objects of imported modules. vLLM has a million."""
    gc.collect()
    gc.freeze()


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
