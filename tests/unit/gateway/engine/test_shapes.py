"""Errors and usage of engines, as they say them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.engine.shapes import TOO_LONG, fault_of, last_usage, usage_of
from weft_gateway.errors import from_engine
from weft_gateway.model.usage import Usage

# Texts of vLLM 0.32, older vLLM, SGLang and llama.cpp, with the sizes that they say.
LONG = [
    ("This model's maximum context length is 4096 tokens. However, your prompt contains at least "
     "4097 input tokens. (parameter=input_tokens, value=4097)", 4097),
    ("This model's maximum context length is 4096 tokens. However, your prompt contains 99000 "
     "characters (more than 80000 characters, which is the upper bound for 4096 input tokens).", 0),
    ("Input length (5000) exceeds model's maximum context length (4096).", 5000),
    ("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4900 "
     "in the messages, 100 in the completion).", 5000),
    ("The decoder prompt (length 5000) is longer than the maximum model length of 4096.", 5000),
    ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", 5000),
    ("Requested token count exceeds the model's maximum context length of 4096 tokens. You "
     "requested a total of 5000 tokens: 4900 tokens from the input messages.", 5000),
    ("the request exceeds the available context size (4096 tokens), try increasing it", 0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "length"), LONG)
def test_texts_about_a_prompt_that_is_too_long_are_recognised(text: str, length: int) -> None:
    fault = fault_of(json.dumps({"error": {"message": text, "code": 400}}).encode(), 400)
    assert (fault.code, fault.length, fault.limit) == (TOO_LONG, length, 4096)
    said = from_engine(fault, "anthropic", "messages", 5000).message
    assert said == "prompt is too long: 5000 tokens > 4096 maximum"


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b'{"error":{"message":"m","code":"400"}}', 400, "m"),
        (b'{"object":"error","message":"m","type":"NotFoundError","code":404}', 404, "m"),
        (b'{"type":"error","error":{"type":"overloaded_error","message":"m"}}', 503, "m"),
        (b'{"type":"error","code":"server_error","message":"m","param":null}', 500, "m"),
        (b'{"response":{"error":{"code":"rate_limit_exceeded","message":"m"}}}', 429, "m"),
        (b'{"message":"m"}', 500, "m"),
        (b"m", 500, "m"),
        (b"<html>502 Bad Gateway</html>", 500, "gave no reason"),
        (b"", 500, "gave no reason"),
    ],
)
def test_all_forms_of_errors_are_read(body: bytes, status: int, message: str) -> None:
    fault = fault_of(body, 400 if b"400" in body else 0)
    assert (fault.status, message in fault.message) == (status, True)
    assert not fault.code.isdigit()


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.just("'loc': 'a'"),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(
                ["error", "message", "code", "type", "param", "detail", "msg", "response"]
            ),
            inner,
        )
    ),
)
_python = st.builds(
    "1 validation error:\n {{'loc': {!r}, 'msg': {!r}}}".format, st.text(), st.text()
)


@given(_json | st.fixed_dictionaries({"message": _python}), st.sampled_from([0, 400, 503]))
def test_any_error_has_the_forms_of_both_apis(read: Any, status: int) -> None:
    error = from_engine(fault_of(json.dumps(read).encode(), status), "openai")
    inner = json.loads(error.body())["error"]
    assert isinstance(inner["message"], str)
    assert inner["message"]
    assert inner["code"] is None or isinstance(inner["code"], str)
    assert json.loads(error.body("anthropic"))["error"].keys() == {"type", "message"}


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(5, 0, 2)),
        ({"prompt_tokens": 5, "prompt_tokens_details": None, "total_tokens": 5}, Usage(5)),
        ({"input_tokens": 5, "input_tokens_details": {"cached_tokens": 4}}, Usage(5, 4)),
        ({"input_tokens": 5, "cache_read_input_tokens": 4, "output_tokens": 1}, Usage(9, 4, 1)),
        ({"input_tokens": 0, "cache_creation_input_tokens": 4}, Usage(4)),
        ({"input_tokens": -1, "output_tokens": True}, None),
        ({"total_tokens": 5}, None),
        (None, None),
        ([], None),
    ],
)
def test_the_usage_of_each_api_is_read(usage: Any, found: Usage | None) -> None:
    assert usage_of(usage) == found
    text = json.dumps({"content": '"usage": {"prompt_tokens": 7}', "usage": usage, "x": None})
    assert last_usage(text.encode()) == found


@given(st.binary() | st.text().map(lambda text: b'"usage": {' + text.encode("utf-8", "replace")))
def test_no_answer_breaks_the_reader(text: bytes) -> None:
    last_usage(text)
