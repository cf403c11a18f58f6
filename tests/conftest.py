"""What every test shares."""

import pytest
from hypothesis import settings

# No test goes by the wall clock: a busy machine is no defect.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the gateway does."""
    return "asyncio"
