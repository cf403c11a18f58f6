"""What the mock engine says to a gateway that asks what it is."""

from __future__ import annotations

import json

import pytest
from weft_bench.fake.server import Engine


@pytest.mark.parametrize("plugin", [False, True])
def test_only_an_engine_that_passes_for_ours_has_a_state(plugin):
    head, _, body = Engine("mock", plugin=plugin).get(b"/weft/state").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200" if plugin else b"HTTP/1.1 404")
    # What a gateway takes for the plugin's sign.
    assert ("weft" in json.loads(body)) is plugin
