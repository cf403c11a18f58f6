"""The mock engine's responses to a gateway's checks."""

from __future__ import annotations

import json

import pytest
from weft_bench.fake.server import Engine
from weft_gateway.engine.described import runs_plugin


@pytest.mark.parametrize("plugin", [False, True])
def test_only_an_engine_with_the_plugin_has_a_state(plugin):
    head, _, body = Engine("mock", plugin=plugin).get(b"/weft/state").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200" if plugin else b"HTTP/1.1 404")
    assert runs_plugin(json.loads(body)) is plugin


def test_streamed_response_has_one_delta_per_word_and_an_end():
    engine = Engine("mock", chunks=3)
    parts = engine.post(b"/v1/responses", b'{"stream": true}')
    assert [b"response.output_text.delta" in part for part in parts] == [False, *[True] * 3, False]
    assert b'"status":"completed"' in parts[-1]
    assert engine.post(b"/v1/responses", b"{}")[0].startswith(b"HTTP/1.1 404")
