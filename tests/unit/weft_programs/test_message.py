"""The assistant message of an answer, for the next request."""

from weft_programs.message import Message


def chunk(finish=None, index=0, **delta):
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def piece(index, id_=None, name=None, arguments=None):
    return {"index": index, "id": id_, "function": {"name": name, "arguments": arguments}}


def test_text_of_the_first_choice_is_joined():
    message = Message()
    for c in (chunk(role="assistant", content="I "), chunk(content="see."), chunk("stop")):
        message.add(c)
    message.add(chunk(index=1, content="no"))
    message.add({"choices": [], "usage": {}})
    message.add({"type": "message_start"})
    assert message.as_json() == {"role": "assistant", "content": "I see."}
    assert message.finish_reason == "stop"


def test_calls_equal_those_of_the_parser():
    message = Message()
    message.add(chunk(tool_calls=[piece(0, "a", "f", ""), piece(1, "b", "g", '{"a":')]))
    message.add(chunk(tool_calls=[piece(0, arguments="{}")]))
    message.complete(0, "f", "{}")
    assert message.incomplete == [1]
    assert message.as_json() == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            # Truncated: its arguments would break a chat template.
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }
