"""The mock engine's bytes are valid HTTP in OpenAI's format."""

from __future__ import annotations

import json

import httptools
import pytest
from weft_bench.fake.answers import Answers, Usage, models

USAGE = Usage(prompt_tokens=7, output_tokens=4)


def parse(raw: bytes):
    """Return the status, headers and body of one response."""

    class Sink:
        def __init__(self):
            self.headers, self.body, self.done = {}, b"", False

        def on_header(self, name, value):
            self.headers[name.lower()] = value

        def on_body(self, body):
            self.body += body

        def on_message_complete(self):
            self.done = True

    sink = Sink()
    parser = httptools.HttpResponseParser(sink)
    parser.feed_data(raw)
    assert sink.done
    return parser.get_status_code(), sink.headers, sink.body


@pytest.mark.parametrize("chat", [True, False])
def test_a_plain_answer_has_text_and_usage(chat):
    status, _, body = parse(Answers("m", chat=chat).plain(USAGE))
    answer = json.loads(body)
    assert status == 200
    assert answer["usage"]["total_tokens"] == 11
    choice = answer["choices"][0]
    assert (choice["message"]["content"] if chat else choice["text"]) == " weft" * 4


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("include_usage", [True, False])
def test_stream_has_one_frame_per_word_and_an_end(chat, include_usage):
    parts = Answers("m", chat=chat).stream(USAGE, include_usage=include_usage)
    _, _, body = parse(b"".join(parts))
    frames = body.split(b"\n\n")
    assert body.count(b'" weft"') == 4
    assert frames[-2] == b"data: [DONE]"
    assert (b'"usage"' in body) is include_usage
    assert len(parts) >= 4, "each frame is one write"


def test_models_identify_a_mock():
    _, _, body = parse(models("m"))
    card = json.loads(body)["data"][0]
    assert (card["id"], card["mock"]) == ("m", True)
