"""Server-sent events, for every chunking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.overlap import events
from weft_gateway.overlap.events import EventReader

STREAM = (
    b": a comment\n\n"
    b"event: one\ndata: {}\n\n"
    b"data:first\ndata: second\nid: 7\n\n"
    b"event: empty\n\n"
    b"event: two\r\ndata:  x\r\n\r\n"
    b"data\n\ndata: [DONE]\n\n"
)
EVENTS = [(b"one", b"{}"), (b"", b"first\nsecond"), (b"two", b" x"), (b"", b"[DONE]")]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_do_not_depend_on_the_chunks(cuts):
    cuts = sorted(cuts)
    pieces = [STREAM[a:b] for a, b in zip([0, *cuts], [*cuts, len(STREAM)], strict=True)]
    reader = EventReader()
    read = [event for piece in pieces for event in reader.feed(piece)]
    assert [(event.name, event.data) for event in read] == EVENTS


def test_event_ends_after_its_blank_line():
    data = b"data: a\n\ndata: b\n\ndata: c"
    reader = EventReader()
    assert [data[: event.end] for event in reader.feed(data)] == [
        b"data: a\n\n",
        b"data: a\n\ndata: b\n\n",
    ]
    assert [event.end for event in reader.feed(b"\n\n!")] == [2]


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: " + b"x" * 94 + b"\n", b"x\n: y"])
def test_too_long_event_is_dropped(piece, monkeypatch):
    monkeypatch.setattr(events, "MAX_EVENT_BYTES", 1000)
    reader = EventReader()
    for _ in range(1000):
        assert reader.feed(piece) == []
        assert sum(map(len, reader._line + reader._data)) <= 1000
    reader.feed(b"\n\n")
    assert [event.data for event in reader.feed(b"data: next\n\n")] == [b"next"]


def test_ignored_lines_do_not_count(monkeypatch):
    monkeypatch.setattr(events, "MAX_EVENT_BYTES", 1000)
    reader = EventReader()
    for _ in range(1000):
        assert reader.feed(b": a com") + reader.feed(b"ment\n") == []
    assert [event.data for event in reader.feed(b"data: x\n\n")] == [b"x"]


@given(st.lists(st.binary()))
def test_no_input_raises(pieces):
    reader = EventReader()
    for piece in pieces:
        reader.feed(piece)
