"""What every test shares."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the gateway does."""
    return "asyncio"
