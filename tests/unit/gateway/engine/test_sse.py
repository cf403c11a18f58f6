"""The stream filter: what goes in, what must come out, for every way to split the bytes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_patches.wire import REPORT_COMMENT, CallReport
from gateway.engine.sse import MAX_REPORT_BYTES, StreamFilter

DONE = (b"data: [DONE]",)
REPORT = CallReport(call="call-1", service_s=1.5, prompt_tokens=7)
COMMENT = REPORT_COMMENT + REPORT.to_json().encode() + b"\n\n"
CHUNK = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
END = b"data: [DONE]\n\n"

# Frames that look like ours, in part or in the wrong place, and must pass.
DECOYS = [
    b": ping\n\n",
    b": weft\n\n",
    b": weft-report",
    b'data: {"content": ": weft-report {}"}\n\n',
    b"data: [DON\n\n",
    b"event: x\r\ndata: 1\r\n\r\n",
    b"\n",
    b"data: \xff\xfe\n\n",
]

frames = st.lists(st.sampled_from([CHUNK, COMMENT, END, *DECOYS]), max_size=12)


def play(pieces: list[bytes], terminals: tuple[bytes, ...] = DONE) -> tuple[bytes, StreamFilter]:
    stream = StreamFilter(terminals)
    passed = b"".join(stream.feed(piece) for piece in pieces)
    return passed + stream.finish(), stream


@given(frames, st.data())
def test_any_split_passes_the_same_bytes_and_the_same_report(
    parts: list[bytes], data: st.DataObject
) -> None:
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
def test_a_stream_without_reports_passes_unchanged(parts: list[bytes]) -> None:
    passed, stream = play(parts)
    assert passed == b"".join(parts)
    assert stream.report is None


def test_the_report_is_taken_out() -> None:
    passed, stream = play([CHUNK, COMMENT, END])
    assert passed == CHUNK + END
    assert stream.report == REPORT


def test_byte_by_byte_is_the_same() -> None:
    whole = CHUNK + COMMENT + END
    passed, stream = play([whole[i : i + 1] for i in range(len(whole))])
    assert passed == CHUNK + END
    assert stream.report == REPORT


def test_a_normal_chunk_is_never_held() -> None:
    stream = StreamFilter(DONE)
    assert stream.feed(CHUNK) == CHUNK
    assert stream.feed(CHUNK[:20]) == CHUNK[:20]
    assert stream.feed(CHUNK[20:]) == CHUNK[20:]


def test_the_last_frame_waits_for_the_report() -> None:
    stream = StreamFilter(DONE)
    assert stream.feed(CHUNK + END) == CHUNK
    assert stream.ended
    assert stream.feed(COMMENT) == END
    assert stream.finish() == b""


def test_the_last_frame_passes_at_once_after_the_report() -> None:
    stream = StreamFilter(DONE)
    stream.feed(CHUNK + COMMENT)
    assert stream.feed(END) == END


def test_the_last_frame_passes_at_the_end_where_no_report_comes() -> None:
    stream = StreamFilter(DONE)
    assert stream.feed(END) == b""
    assert stream.finish() == END


@pytest.mark.parametrize(
    "terminal",
    [b"event: message_stop", b"event: response.completed"],
    ids=["messages", "responses"],
)
def test_other_endpoints_end_with_frames_of_their_own(terminal: bytes) -> None:
    last = terminal + b'\ndata: {"type":"x"}\n\n'
    stream = StreamFilter((terminal,))
    assert stream.feed(END) == END  # Not an end here.
    assert stream.feed(last) == b""
    assert stream.feed(COMMENT) == last


def test_a_marker_inside_a_line_is_text() -> None:
    line = b'data: {"content":"x: weft-report {} data: [DONE]"}\n\n'
    passed, stream = play([line])
    assert passed == line
    assert not stream.ended


def test_a_comment_of_ours_that_is_not_json_goes_and_reports_nothing() -> None:
    passed, stream = play([CHUNK + REPORT_COMMENT + b"{oops\n\n" + END])
    assert passed == CHUNK + END
    assert stream.report is None


def test_a_report_without_end_passes_as_it_is() -> None:
    endless = REPORT_COMMENT + b"x" * (MAX_REPORT_BYTES * 2)
    for size in (100, 5000, len(endless)):
        pieces = [endless[i : i + size] for i in range(0, len(endless), size)]
        passed, stream = play(pieces)
        assert passed == endless
        assert stream.report is None
