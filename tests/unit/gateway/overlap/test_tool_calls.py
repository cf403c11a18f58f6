"""Tool calls from the chunks of three APIs, each reported when it is complete."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.overlap import tool_calls
from weft_gateway.overlap.text_calls import MAX_KEPT_CHARS
from weft_gateway.overlap.tool_calls import ToolCall, ToolCallParser

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(max_size=5), JSON, max_size=3).map(json.dumps)
CALLS = st.lists(ARGUMENTS, min_size=1, max_size=4)


def chat(*pieces, index=0, choice=0, finish=None):
    """Return a chunk with pieces of a call: id, name or arguments."""
    deltas = [
        {"index": index, "function": {"arguments": piece}}
        if isinstance(piece, str)
        else {"index": index, "id": piece[0], "function": {"name": piece[1], "arguments": ""}}
        for piece in pieces
    ]
    delta = {"tool_calls": deltas} if deltas else {}
    return {"choices": [{"index": choice, "delta": delta, "finish_reason": finish}]}


def read(chunks, **options):
    parser = ToolCallParser(**options)
    return [call for chunk in chunks for call in parser.feed(chunk)]


def split(data, text):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(CALLS, st.data())
def test_chat_calls_are_complete_with_their_closing_brace(calls, data):
    parser = ToolCallParser()
    for index, arguments in enumerate(calls):
        assert parser.feed(chat((f"c{index}", "f"), index=index)) == []
        seen = ""
        for piece in split(data, arguments):
            seen += piece
            found = parser.feed(chat(piece, index=index))
            if seen == arguments and piece:
                assert found == [ToolCall(index, f"c{index}", "f", arguments)]
            else:
                assert found == []
    assert parser.feed(chat(finish="tool_calls")) == []


@given(st.data())
def test_choices_and_interleaved_calls_are_separate(data):
    whole = {(c, i): json.dumps({"of": [c, i], "t": "}"}) for c in range(2) for i in range(2)}
    queue = {key: list(text) for key, text in whole.items()}
    parser = ToolCallParser()
    found = []
    for choice, index in whole:
        parser.feed(chat((f"{choice}.{index}", "f"), index=index, choice=choice))
    while queue:
        choice, index = key = data.draw(st.sampled_from(sorted(queue)))
        # Arguments of a later call would complete an earlier call that has none yet.
        if index and len(queue.get((choice, 0), "")) == len(whole[choice, 0]):
            index = 0
            key = (choice, 0)
        found += parser.feed(chat(queue[key].pop(0), index=index, choice=choice))
        if not queue[key]:
            del queue[key]
            assert found[-1] == ToolCall(index, f"{choice}.{index}", "f", whole[key], choice)
    assert len(found) == 4


def anthropic(calls, data):
    for index, arguments in enumerate(calls):
        block = {"type": "tool_use", "id": f"c{index}", "name": "f", "input": {}}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for piece in split(data, arguments):
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
    yield {"type": "message_stop"}


def responses(calls, data):
    for index, arguments in enumerate(calls):
        item = {"type": "function_call", "id": "fc", "call_id": f"c{index}", "name": "f"}
        at = {"output_index": index}
        yield {"type": "response.output_item.added", "item": item | {"arguments": ""}} | at
        for piece in split(data, arguments):
            yield {"type": "response.function_call_arguments.delta", "delta": piece} | at
        yield {"type": "response.function_call_arguments.done", "arguments": arguments} | at
        yield {"type": "response.output_item.done", "item": item | {"arguments": arguments}} | at
    yield {"type": "response.completed", "response": {}}


@pytest.mark.parametrize("api", [anthropic, responses])
@given(CALLS, st.data())
def test_other_apis_give_the_same_calls(api, calls, data):
    parser = ToolCallParser()
    found = []
    for chunk in api(calls, data):
        found += parser.feed(chunk)
        if chunk["type"].endswith(("block_stop", "arguments.done")):
            place = chunk.get("index", chunk.get("output_index"))
            assert len(found) == place + 1, "known before the API says that it is done"
    assert found == [ToolCall(i, f"c{i}", "f", text) for i, text in enumerate(calls)]


def test_response_call_without_deltas_is_complete_at_its_done_event():
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}
    assert read(
        [
            {"type": "response.output_item.added", "output_index": 3, "item": item},
            {
                "type": "response.function_call_arguments.done",
                "output_index": 3,
                "arguments": "{}",
            },
        ]
    ) == [ToolCall(3, "c", "f", "{}")]


def test_messages_call_with_whole_input_is_complete_at_its_start():
    block = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
    start = {"type": "content_block_start", "index": 1, "content_block": block}
    assert read([start]) == [ToolCall(1, "c", "f", '{"a": 1}')]


@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
def test_call_without_arguments_is_complete_at_the_next_call_or_the_end(finish):
    parser = ToolCallParser()
    assert parser.feed(chat(("a", "f"))) == []
    assert parser.feed(chat(("b", "g"), index=1)) == [], "heads may all come first"
    assert parser.feed(chat("{", index=1)) == [ToolCall(0, "a", "f", "{}")]
    assert parser.feed(chat("}", index=1)) == [ToolCall(1, "b", "g", "{}")]
    assert parser.feed(chat(("c", "f"), index=2)) == []
    assert parser._open
    assert parser.feed(chat(finish=finish)) == [ToolCall(2, "c", "f", "{}")]
    assert not parser._open


@pytest.mark.parametrize("finish", ["length", "content_filter", "abort", None])
@pytest.mark.parametrize("arguments", ["", '{"a": ', "1"])
def test_truncated_answer_has_no_calls(finish, arguments):
    assert read([chat(("a", "f"), arguments), chat(finish=finish)]) == []


def test_number_is_complete_at_the_end():
    chunks = [chat(("a", "f"), "1"), chat("2"), chat(finish="stop")]
    assert [call.arguments for call in read(chunks)] == ["12"]


def test_text_after_the_closing_brace_is_ignored():
    [call] = read([chat(("a", "f"), ' {"a": 1}\n}}'), chat('{"b": 2}'), chat(finish="stop")])
    assert call.arguments == '{"a": 1}'


def test_name_may_come_in_pieces_or_repeatedly():
    parts = [("a", "get_"), ("a", "get_"), ("", "weather"), ("a", "get_weather")]
    [call] = read([chat(*parts), chat("{}"), chat(("b", "other"))])
    assert (call.id, call.name) == ("a", "get_weather")


def test_name_is_complete_when_arguments_begin():
    chunks = [chat(("a", "f"), '{"a": '), chat(("a", "late")), chat("1}")]
    assert [call.name for call in read(chunks)] == ["f"]


@pytest.mark.parametrize(("reason", "whole"), [("tool_use", True), ("max_tokens", False)])
def test_messages_call_without_arguments_needs_a_complete_answer(reason, whole):
    block = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    chunks = [
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}},
    ]
    assert read(chunks[:2]) == []
    assert read(chunks) == [ToolCall(0, "c", "f", "{}")] * whole


@pytest.mark.parametrize(("end", "whole"), [("completed", True), ("incomplete", False)])
def test_response_call_without_arguments_needs_a_complete_answer(end, whole):
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}
    done = {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": ""}
    chunks = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        done,
        {"type": f"response.{end}", "response": {}},
    ]
    assert read(chunks[:2]) == []
    assert read(chunks) == [ToolCall(0, "c", "f", "{}")] * whole


def test_server_tools_are_ignored():
    block = {"type": "server_tool_use", "id": "c", "name": "web_search", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": '{"q": '}
    parser = ToolCallParser()
    parser.feed({"type": "content_block_start", "index": 0, "content_block": block})
    assert parser.feed({"type": "content_block_delta", "index": 0, "delta": delta}) == []
    assert not parser._open


@pytest.mark.parametrize("arguments", ['{"a": }', "]", "}{", '{"a" 1}', "nonsense"])
def test_call_with_invalid_arguments_is_dropped(arguments):
    assert read([chat(("a", "f"), arguments), chat(finish="tool_calls")]) == []


def test_call_without_a_name_is_dropped():
    assert read([chat("{}"), chat(finish="tool_calls")]) == []


def content(text, choice=0):
    return {"choices": [{"index": choice, "delta": {"content": text}}]}


TEXT = '[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "parameters": {}}]'
IN_TEXT = [("f", '{"a": 1}', 0), ("g", "{}", 1)]


@pytest.mark.parametrize(
    "chunk",
    [
        content,
        lambda piece: {"choices": [{"index": 0, "text": piece}]},
        lambda piece: {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": piece},
        },
        lambda piece: {
            "type": "response.output_text.delta",
            "output_index": 0,
            "content_index": 0,
            "delta": piece,
        },
    ],
)
def test_calls_in_text_are_found_in_every_api(chunk):
    parser = ToolCallParser()
    found = [[parser.feed(chunk(character))] for character in TEXT]
    calls = [call for [calls] in found for call in calls]
    assert [(call.name, call.arguments, call.index) for call in calls] == IN_TEXT
    assert found.index([[calls[0]]]) == TEXT.index("}}") + 1


def test_text_of_each_choice_is_separate():
    parser = ToolCallParser()
    calls = [c for piece in TEXT for n in (0, 1) for c in parser.feed(content(piece, n))]
    assert [(c.name, c.choice) for c in calls] == [("f", 0), ("f", 1), ("g", 0), ("g", 1)]


def test_text_is_searched_for_known_tools():
    assert [call.name for call in read([content(TEXT)], names={"f"})] == ["f"]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "tool_calls",
                    "index",
                    "function",
                    "name",
                    "arguments",
                    "type",
                    "content",
                    "content_block",
                    "item",
                    "output_index",
                    "id",
                    "finish_reason",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
TYPES = ["content_block_delta", "content_block_start", "message_delta"] + [
    f"response.{name}"
    for name in ("output_item.added", "output_text.delta", "function_call_arguments.delta")
]


@given(st.lists(ANY | st.fixed_dictionaries({"type": st.sampled_from(TYPES), "delta": ANY})))
def test_no_input_raises(chunks):
    read(chunks)


@pytest.mark.parametrize("odd", [[], {}, [1], {"a": 1}])
def test_finish_reason_of_any_type_does_not_raise(odd):
    begun = chat(("a", "f"), '{"a": 1')
    ends = [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": odd}]},
        {"type": "message_delta", "delta": {"stop_reason": odd}},
    ]
    assert [call.name for call in read([begun, *ends, chat("}")])] == ["f"]


def test_deep_arguments_do_not_raise():
    deep = "[" * 100_000 + "]" * 100_000
    assert read([chat(("a", "f"), deep), content(f'[{{"name": "f", "arguments": {deep}}}]')]) == []


def test_endless_arguments_are_dropped_without_later_calls():
    parser = ToolCallParser()
    parser.feed(chat(("a", "f"), '{"a": "'))
    piece = "x" * (MAX_KEPT_CHARS // 8)
    for _ in range(16):
        assert parser.feed(chat(piece)) == []
    assert not parser._open
    assert parser.feed(chat('"}')) == []
    assert len(parser.feed(chat(("b", "f"), f'{{"a": "{piece}"}}', index=1))) == 1


def test_number_of_open_calls_is_limited(monkeypatch):
    monkeypatch.setattr(tool_calls, "MAX_FOLLOWED", 8)
    chunks = [chat((f"c{i}", "f"), "{}", index=i) for i in range(20)]
    assert len(read(chunks)) == 8
    assert len(read([content(TEXT, choice) for choice in range(20)])) == 8 * len(IN_TEXT)
