"""Signatures of requests."""

from __future__ import annotations

import pytest
from weft_run.language.requests import (
    HttpRequest,
    LlmRequest,
    PythonRequest,
    Request,
    SqlRequest,
    Text,
)
from weft_run.language.signature import signature

GREEDY = {"temperature": 0, "max_tokens": 5}
PROMPT = (("user", "a"),)


def test_signatures_tell_requests_apart() -> None:
    base = LlmRequest(PROMPT, "m", GREEDY)
    others = [
        LlmRequest((("user", "b"),), "m", GREEDY),
        LlmRequest((("system", "a"),), "m", GREEDY),
        LlmRequest(PROMPT, "n", GREEDY),
        LlmRequest(PROMPT, "m", {"temperature": 0}),
        LlmRequest(PROMPT, "m", {"temperature": 1, "seed": 1}),
        LlmRequest(PROMPT, "m", {"temperature": 1, "seed": 2}),
        SqlRequest("db", "a"),
    ]
    assert signature(base) == signature(
        LlmRequest(PROMPT, "m", {"max_tokens": 5, "temperature": 0})
    )
    assert len({signature(one) for one in [base, *others]}) == 8


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # SQLite divides integers and floats differently.
        (
            SqlRequest("db", "select 7 / :a", {"a": 2}),
            SqlRequest("db", "select 7 / :a", {"a": 2.0}),
        ),
        (PythonRequest("m:f", (1,)), PythonRequest("m:f", (1.0,))),
        (PythonRequest("m:f", (0.0,)), PythonRequest("m:f", (-0.0,))),
        (PythonRequest("m:f", (1,)), PythonRequest("m:f", (True,))),
        # The order of a schema is that of the answer.
        (
            LlmRequest(PROMPT, "m", GREEDY | {"response_format": {"a": 1, "b": 2}}),
            LlmRequest(PROMPT, "m", GREEDY | {"response_format": {"b": 2, "a": 1}}),
        ),
        (PythonRequest("m:f", ({"a": 1, "b": 2},)), PythonRequest("m:f", ({"b": 2, "a": 1},))),
        (
            HttpRequest("PUT", "u", {}, {"a": 1, "b": 2}),
            HttpRequest("PUT", "u", {}, {"b": 2, "a": 1}),
        ),
    ],
)
def test_values_that_are_not_the_same_json_differ(one: Request, other: Request) -> None:
    assert signature(one, idempotent=True) != signature(other, idempotent=True)


@pytest.mark.parametrize(
    "request_",
    [
        LlmRequest(PROMPT, "m", {"temperature": 0.7}),
        LlmRequest(PROMPT, "m"),
        SqlRequest("db", "a", write=True),
        PythonRequest("m:f"),
        HttpRequest("GET", "u"),
        Text("a"),
    ],
)
def test_sampled_calls_and_effects_have_no_signature(request_: Request) -> None:
    assert signature(request_) is None


def test_idempotent_tools_and_reads_have_a_signature() -> None:
    assert signature(PythonRequest("m:f"), idempotent=True)
    assert signature(HttpRequest("PUT", "u"), idempotent=True)
    read = SqlRequest("db", "a")
    assert signature(read) == signature(read)
