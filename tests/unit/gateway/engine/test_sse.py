"""The stream filter: input and expected output for every split of the bytes."""

from itertools import pairwise
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.wire import REPORT_COMMENT, CallReport
from weft_gateway.engine import sse
from weft_gateway.engine.errors import ReplicaClosed, ReplicaGarbage
from weft_gateway.engine.sse import MAX_REPORT_BYTES, MAX_TAIL_BYTES, StreamFilter

DONE = (b"data: [DONE]",)
REPORT = CallReport(call="call-1", service_s=1.5, prompt_tokens=7)
COMMENT = REPORT_COMMENT + REPORT.to_json().encode() + b"\n\n"
CHUNK = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
END = b"data: [DONE]\n\n"

# Frames that contain a marker in part or in the wrong place, and must pass.
DECOYS = [
    b": ping\n\n",
    b": weft\n\n",
    b": weft-report",
    b'data: {"content": ": weft-report {}"}\n\n',
    b"data: [DON\n\n",
    b"event: x\r\ndata: 1\r\n\r\n",
    b"\n",
    b"\r\n",
    b"\r",
    b": keep-alive\n",
    b"data: cut",
    b"id: 7\nevent: x\ndata: 1\ndata: 2\n\n",
    b"data: \xff\xfe\n\n",
]

frames = st.lists(st.sampled_from([CHUNK, COMMENT, END, *DECOYS]), max_size=12)


def play(pieces: list[bytes], terminals: tuple[bytes, ...] = DONE) -> tuple[bytes, StreamFilter]:
    """Return the bytes that pass, and the filter, for a stream of these pieces, complete or not."""
    stream = StreamFilter(terminals)
    passed = b"".join(stream.feed(piece) for piece in pieces)
    try:
        return passed + stream.finish(), stream
    except ReplicaClosed:
        return passed + stream.cut(), stream


@given(frames, st.data())
def test_output_does_not_depend_on_the_chunks(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=20)))
    bounds = [0, *cuts, len(whole)]
    pieces = [whole[a:b] for a, b in pairwise(bounds)]

    expected, at_once = play([whole])
    passed, stream = play(pieces)

    assert passed == expected
    assert stream.report == at_once.report
    assert stream.ended == at_once.ended


@given(st.lists(st.sampled_from([CHUNK, *DECOYS]), max_size=12))
def test_stream_without_reports_passes_unchanged(parts: list[bytes]) -> None:
    passed, stream = play(parts, ())
    assert passed == b"".join(parts)
    assert stream.report is None


@given(st.lists(st.sampled_from([CHUNK, b"data: 1\r\n\r\n", b": ping\n\n"])), st.integers(0, 99))
def test_output_never_ends_inside_a_frame(parts: list[bytes], cut: int) -> None:
    whole = b"".join(parts)
    stream = StreamFilter(DONE)
    passed = stream.feed(whole[: len(whole) * cut // 99]) + stream.cut()
    lines = passed.replace(b"\r", b"").split(b"\n\n")
    assert lines[-1] == b"" or lines[-1].startswith(b": ping")
    assert all(line in (CHUNK.strip(), b"data: 1", b": ping") for line in lines[:-1])


def test_report_is_removed_from_the_stream() -> None:
    passed, stream = play([CHUNK, COMMENT, END])
    assert passed == CHUNK + END
    assert stream.report == REPORT


def test_single_bytes_give_the_same_output() -> None:
    whole = CHUNK + COMMENT + END
    passed, stream = play([whole[i : i + 1] for i in range(len(whole))])
    assert passed == CHUNK + END
    assert stream.report == REPORT


def test_only_incomplete_frames_are_held() -> None:
    stream = StreamFilter(DONE)
    assert stream.feed(CHUNK) == CHUNK
    assert stream.feed(CHUNK + CHUNK) == CHUNK + CHUNK
    assert stream.feed(CHUNK + CHUNK[:20]) == CHUNK
    assert stream.feed(CHUNK[20:-1]) == b""
    assert stream.feed(CHUNK[-1:]) == CHUNK
    assert stream.feed(b"event: x\r\ndata: 1\r\n\r\n") == b"event: x\r\ndata: 1\r\n\r\n"


def test_comment_passes_before_its_blank_line() -> None:
    stream = StreamFilter(DONE)
    assert stream.feed(b": keep-alive\n") == b": keep-alive\n"
    assert stream.feed(b"\n" + CHUNK) == b"\n" + CHUNK


@pytest.mark.parametrize("tail", [b"", COMMENT[:-1], b"data: x"])
def test_truncated_frame_is_dropped_and_complete_ones_pass(tail: bytes) -> None:
    stream = StreamFilter(DONE)
    assert stream.feed(CHUNK + CHUNK[:-1]) == CHUNK
    assert stream.cut() == b""
    stream = StreamFilter(DONE)
    assert stream.feed(CHUNK + END + tail) == CHUNK
    assert stream.cut() == END


@pytest.mark.parametrize("rest", [b"", CHUNK[:-2], b"data: [DON"])
def test_end_without_a_terminal_frame_is_an_error(rest: bytes) -> None:
    stream = StreamFilter(DONE)
    stream.feed(CHUNK + rest)
    with pytest.raises(ReplicaClosed):
        stream.finish()
    assert stream.cut() == b""
    stream = StreamFilter(())
    assert stream.feed(CHUNK + rest) + stream.finish() == CHUNK + rest


@pytest.mark.parametrize(
    ("terminal", "last"),
    [
        (DONE[0], b"data: [DONE]"),  # The blank line is missing.
        (DONE[0], b"data:[DONE]\n\n"),
        (DONE[0], b"data: [DONE]\r\n\r\n"),
        (DONE[0], b"id: 9\ndata: [DONE]\n\n"),
        (b"event: message_stop", b"event:message_stop\ndata: {}\n\n"),
        (b"event: response.completed", b'data: {"type":"response.completed","x":1}\n\n'),
        (b"event: response.completed", b'data: {"type": "response.completed"}\n\n'),
    ],
)
def test_terminal_frame_is_recognised_in_every_spelling(terminal: bytes, last: bytes) -> None:
    for pieces in ([CHUNK, last], [CHUNK + last], [last[:3], last[3:]]):
        stream = StreamFilter((terminal,))
        passed = b"".join(stream.feed(piece) for piece in pieces) + stream.finish()
        assert passed == b"".join(pieces)
        assert stream.ended


def test_incomplete_terminal_frame_is_no_end() -> None:
    stream = StreamFilter((b"event: message_stop",))
    assert stream.feed(b"event: message_stop\ndata: {") == b""
    assert not stream.ended
    assert stream.cut() == b""


def test_endless_frame_is_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_FRAME_BYTES", 100)
    for piece in (b"x", b"x\n"):
        stream = StreamFilter(DONE)
        for _ in range(100 // len(piece)):
            assert stream.feed(piece) == b""
        with pytest.raises(ReplicaGarbage):
            stream.feed(piece)


def test_terminal_frame_waits_for_the_report() -> None:
    stream = StreamFilter(DONE)
    assert stream.feed(CHUNK + END) == CHUNK
    assert stream.ended
    assert stream.feed(COMMENT) == END
    assert stream.finish() == b""


def test_terminal_frame_passes_immediately_after_the_report() -> None:
    stream = StreamFilter(DONE)
    stream.feed(CHUNK + COMMENT)
    assert stream.feed(END) == END


def test_terminal_frame_passes_at_the_end_without_a_report() -> None:
    stream = StreamFilter(DONE)
    assert stream.feed(END) == b""
    assert stream.finish() == END


@pytest.mark.parametrize(
    "terminal",
    [b"event: message_stop", b"event: response.completed"],
    ids=["messages", "responses"],
)
def test_each_endpoint_has_its_terminal_frame(terminal: bytes) -> None:
    last = terminal + b'\ndata: {"type":"x"}\n\n'
    stream = StreamFilter((terminal,))
    assert stream.feed(END) == END  # Not a terminal frame here.
    assert stream.feed(last) == b""
    assert stream.feed(COMMENT) == last


def test_marker_inside_a_line_is_text() -> None:
    line = b'data: {"content":"x: weft-report {} data: [DONE]"}\n\n'
    passed, stream = play([line])
    assert passed == line
    assert not stream.ended


def test_report_comment_without_json_is_dropped() -> None:
    passed, stream = play([CHUNK + REPORT_COMMENT + b"{oops\n\n" + END])
    assert passed == CHUNK + END
    assert stream.report is None


def test_too_long_report_passes_unchanged() -> None:
    endless = REPORT_COMMENT + b"x" * (MAX_REPORT_BYTES * 2) + b"\n\n" + END
    for size in (100, 5000, len(endless)):
        pieces = [endless[i : i + size] for i in range(0, len(endless), size)]
        passed, stream = play(pieces)
        assert passed == endless
        assert stream.report is None


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b'{"call":1}',
        b'{"call":"c","service_s":1e300}',
        b'{"call":"c","service_s":NaN}',
    ],
)
def test_malformed_report_is_dropped_and_counted(text: bytes) -> None:
    bad = REPORT_COMMENT + text + b"\n\n"
    passed, stream = play([CHUNK, bad, COMMENT, bad, END])
    assert passed == CHUNK + END
    assert (stream.report, stream.dropped) == (REPORT, 2)


def test_bytes_after_the_end_are_limited() -> None:
    stream = StreamFilter(DONE)
    comments = b": more\n" * 1000
    passed = stream.feed(CHUNK + END)
    for _ in range(MAX_TAIL_BYTES // len(comments)):
        passed += stream.feed(comments)
    with pytest.raises(ReplicaGarbage):
        stream.feed(comments)
    passed += stream.cut()
    assert passed.startswith(CHUNK + END)
    assert len(passed) <= len(CHUNK + END) + MAX_TAIL_BYTES


def test_a_report_of_many_lines_takes_linear_time() -> None:
    stream = StreamFilter(())
    assert stream.feed(REPORT_COMMENT + b"{\n") == b""
    begun_s = process_time()
    for _ in range(1000):
        assert stream.feed(b"a\n" * 8192) == b""
    assert process_time() - begun_s < 2
    assert stream.feed(b"\n").endswith(b"a\n\n")
