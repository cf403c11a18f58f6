"""The tool call event in a stream: its place, and no other change."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.overlap.dispatch import EVENT, ToolDispatch, frame, opted_in
from weft_gateway.overlap.events import EventReader
from weft_gateway.overlap.tool_calls import ToolCall


def sse(data, name=None):
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def chunk(delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return sse(
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
         "choices": [choice]}
    )  # fmt: skip


def call(index, **function):
    return {"tool_calls": [{"index": index, "id": f"c{index}", "function": function}]}


FRAMES = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "I look."}),
    chunk(call(0, name="f", arguments="")),
    chunk(call(0, arguments='{"a": "')),
    chunk(call(0, arguments='\\"}"}')),  # Completes the first call.
    chunk(call(1, name="g", arguments="{}")),  # A whole call.
    chunk(call(2, name="h", arguments="")),
    chunk({}, "tool_calls"),  # Completes the third call.
    b"data: [DONE]\n\n",
]
COMPLETES = {4: ("f", '{"a": "\\"}"}'), 5: ("g", "{}"), 7: ("h", "{}")}
STREAM = b"".join(FRAMES)


def pieces(cuts):
    cuts = sorted(cuts)
    return [STREAM[a:b] for a, b in zip([0, *cuts], [*cuts, len(STREAM)], strict=True)]


CUTS = st.lists(st.integers(0, len(STREAM)), max_size=20)


@given(CUTS)
def test_events_do_not_depend_on_the_chunks(cuts):
    dispatch = ToolDispatch()
    out, calls = b"", []
    for piece in pieces(cuts):
        passed, found = dispatch.feed(piece)
        out += passed
        calls += found
    assert [(c.name, c.arguments) for c in calls] == list(COMPLETES.values())
    expected = b""
    completed = iter(calls)
    for place, bytes_ in enumerate(FRAMES):
        expected += bytes_
        if place in COMPLETES:
            expected += frame(next(completed), json.loads(FRAMES[0][6:]))
    assert out == expected


@pytest.mark.parametrize("cut", [0, 20])
def test_any_finish_reason_completes_a_call(cut):
    dispatch = ToolDispatch()
    end = chunk({}, "stop")
    assert dispatch.feed(chunk(call(0, name="f", arguments="")))[1] == []
    _, before = dispatch.feed(end[:cut])
    _, calls = dispatch.feed(end[cut:])
    assert [c.arguments for c in (*before, *calls)] == ["{}"]


@given(CUTS)
def test_stream_without_inserted_events_passes_and_reports_calls(cuts):
    dispatch = ToolDispatch(insert=False)
    results = [(piece, *dispatch.feed(piece)) for piece in pieces(cuts)]
    assert all(passed is piece for piece, passed, _ in results)
    assert sum(len(found) for *_, found in results) == 3


@given(CUTS)
def test_no_byte_is_held(cuts):
    dispatch = ToolDispatch()
    for piece in pieces(cuts):
        passed, _ = dispatch.feed(piece)
        assert passed.endswith(piece[-1:])
        assert len(passed) >= len(piece)


ITEM = {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}
BLOCK = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
PARTS = ['{"a": "\\"', '}"', "}"]
OTHERS = {
    "messages": [
        {"type": "content_block_start", "index": 0, "content_block": BLOCK},
        *(
            {"type": "content_block_delta", "index": 0,
             "delta": {"type": "input_json_delta", "partial_json": part}}
            for part in PARTS
        ),
        {"type": "content_block_stop", "index": 0},
    ],
    "responses": [
        {"type": "response.output_item.added", "output_index": 0, "item": ITEM},
        *(
            {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": part}
            for part in PARTS
        ),
        {"type": "response.completed"},
    ],
    "text": [
        {"choices": [{"index": 0, "delta": {"content": part}}]}
        for part in ('[{"name": "f", "argu', 'ments": ', '{"a": "\\"}"', "}}", "]")
    ],
}  # fmt: skip


@pytest.mark.parametrize("api", OTHERS)
@given(st.data())
def test_other_apis_do_not_depend_on_the_chunks(api, data):
    frames = [sse(event, event.get("type")) for event in OTHERS[api]]
    stream, before = b"".join(frames), b"".join(frames[:-1])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    dispatch = ToolDispatch()
    out = b"".join(
        dispatch.feed(stream[a:b])[0] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)
    )
    event = frame(ToolCall(0, "" if api == "text" else "c", "f", '{"a": "\\"}"}'), OTHERS[api][0])
    assert out == before + event + frames[-1], "after the brace, before what comes next"


@pytest.mark.parametrize(
    ("api", "kind"), [("messages", "ping"), ("responses", EVENT), ("text", None)]
)
def test_frame_type_is_ignored_by_the_apis_clients(api, kind):
    """The AI SDK validates every event of Messages against its known types."""
    [event] = EventReader().feed(frame(ToolCall(0, "c", "f", "{}"), OTHERS[api][0]))
    assert json.loads(event.data).get("type") == kind


def test_frame_is_dynamos_event_and_a_chunk_without_choices():
    whole = ToolCall(1, "c1", "f", '{"a": "ä"}', 2)
    data = {"id": "x", "object": "chat.completion.chunk", "created": 5, "model": "m",
            "choices": [{}], "usage": {}}  # fmt: skip
    [event] = EventReader().feed(frame(whole, data))
    assert event.name == EVENT.encode()
    parsed = json.loads(event.data)
    assert parsed == {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 5,
        "model": "m",
        "choices": [],
        "choice_index": 2,
        "tool_call": {
            "index": 1,
            "id": "c1",
            "type": "function",
            "function": {"name": "f", "arguments": '{"a": "ä"}'},
        },
    }


@given(st.lists(st.binary(max_size=40)))
def test_no_input_raises_or_is_lost(parts):
    dispatch = ToolDispatch()
    data = b"data: ".join(parts)
    assert dispatch.feed(data) == (data, [])


@pytest.mark.parametrize(
    ("header", "hints", "wanted"),
    [
        (None, None, False),
        (None, {"tool_dispatch": True}, True),
        (None, {"tool_dispatch": "yes"}, False),
        (None, ["tool_dispatch"], False),
        (b"1", None, True),
        (b"True ", None, True),
        (b"0", {"tool_dispatch": True}, False),
        (b"", None, False),
    ],
)
def test_header_or_hint_opts_in(header, hints, wanted):
    assert opted_in(header, hints) is wanted
