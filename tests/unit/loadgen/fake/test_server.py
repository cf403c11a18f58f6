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


def test_a_streamed_response_has_a_delta_a_word_and_its_end():
    engine = Engine("mock", chunks=3)
    parts = engine.post(b"/v1/responses", b'{"stream": true}')
    assert [b"response.output_text.delta" in part for part in parts] == [False, *[True] * 3, False]
    assert b'"status":"completed"' in parts[-1]
    assert engine.post(b"/v1/responses", b"{}")[0].startswith(b"HTTP/1.1 404")
