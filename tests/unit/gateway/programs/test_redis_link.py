"""The description of the Redis server. The contract suite tests the rest with a server."""

from __future__ import annotations

import pytest
from weft_gateway.programs.redis_link import _without_credentials


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://user:se@cret@host:1/2", "redis://host:1/2"),
        ("rediss://:secret@[::1]:6380", "rediss://[::1]:6380"),
        ("redis://host?password=secret", "redis://host"),
        ("unix://user:secret@/run/redis.sock?db=1", "unix:///run/redis.sock"),
    ],
)
def test_url_is_shown_without_its_password(url, shown):
    assert _without_credentials(url) == shown
