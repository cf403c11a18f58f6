"""Requests: the bodies of operators, rendered."""

from __future__ import annotations

import pytest
from weft_run.language.graph import (
    Format,
    Http,
    Llm,
    Message,
    Python,
    Simple,
    Sql,
    digest,
)
from weft_run.language.requests import (
    HttpRequest,
    LlmRequest,
    PythonRequest,
    Request,
    SqlRequest,
    Text,
    rendered,
)
from weft_run.language.templates import Template, TemplateError

Q, N = Template.parse("{{ q }}!"), Template.parse("{{ n }}")
SCOPE = {"q": "Q", "n": [1]}


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        (Llm((Message("user", Q),)), LlmRequest((("user", "Q!"),), "m")),
        (Llm((Message("user", Q),), "other"), LlmRequest((("user", "Q!"),), "other")),
        (Format(Q), Text("Q!")),
        (Python("m:f", (N,)), PythonRequest("m:f", ([1],))),
        (Sql("db", Q, {"n": N}), SqlRequest("db", "Q!", {"n": [1]})),
        (
            Http("POST", Q, {"x": Q}, {"a": (N,)}),
            HttpRequest("POST", "Q!", {"x": "Q!"}, {"a": [[1]]}),
        ),
    ],
)
def test_rendering(body: Simple, request_: Request) -> None:
    assert rendered(body, SCOPE, "m") == request_


def test_arguments_are_json() -> None:
    letters = Template.parse("{{ n | map('string') }}")
    for body in (
        Python("m:f", (letters,)),
        Sql("db", Q, {"n": letters}),
        Http("POST", Q, {}, {"a": (letters,)}),
    ):
        assert digest(rendered(body, SCOPE, "m")) == digest(rendered(body, SCOPE, "m"))
        with pytest.raises(TemplateError, match="the number nan is not JSON"):
            rendered(body, {"q": "Q", "n": [float("nan")]}, "m")
