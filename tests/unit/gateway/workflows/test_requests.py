"""Requests: rendering, signatures and keys of the prompt cache."""

from __future__ import annotations

import pytest
from weft_gateway.workflows.graph import Format, Http, Llm, Message, Python, Simple, Sql
from weft_gateway.workflows.requests import (
    CacheScope,
    HttpRequest,
    LlmRequest,
    PythonRequest,
    Request,
    SqlRequest,
    Text,
    cache_key,
    rendered,
    signature,
)
from weft_gateway.workflows.templates import Template, parsed

Q = Template.parse("{{ q }}!")
SCOPE = {"q": "Q", "n": [1]}


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        (Llm((Message("user", Q),)), LlmRequest((("user", "Q!"),), "m")),
        (Llm((Message("user", Q),), "other"), LlmRequest((("user", "Q!"),), "other")),
        (Format(Q), Text("Q!")),
        (Python("m:f", (parsed("{{ n }}"),)), PythonRequest("m:f", ([1],))),
        (Sql("db", Q, {"n": parsed("{{ n }}")}), SqlRequest("db", "Q!", {"n": [1]})),
        (
            Http("POST", Q, {"x": Q}, parsed({"a": ["{{ n }}"]})),
            HttpRequest("POST", "Q!", {"x": "Q!"}, {"a": [[1]]}),
        ),
    ],
)
def test_rendering(body: Simple, request_: Request) -> None:
    assert rendered(body, SCOPE, "m") == request_


def test_signatures_tell_requests_apart() -> None:
    base = LlmRequest((("user", "a"),), "m", {"temperature": 0, "max_tokens": 5})
    same = LlmRequest((("user", "a"),), "m", {"max_tokens": 5, "temperature": 0.0})
    others = [
        LlmRequest((("user", "b"),), "m", base.parameters),
        LlmRequest((("system", "a"),), "m", base.parameters),
        LlmRequest((("user", "a"),), "n", base.parameters),
        LlmRequest((("user", "a"),), "m", {"temperature": 0}),
        Text("a"),
    ]
    assert signature(base) == signature(same)
    assert len({signature(one) for one in [base, *others]}) == 6


def test_cache_keys_depend_on_tenant_revision_and_template() -> None:
    request = LlmRequest((("user", "a"),), "m")
    scopes = [CacheScope("t"), CacheScope("u"), CacheScope("t", "r"), CacheScope("t", "", "c")]
    assert len({cache_key(request, scope) for scope in scopes}) == 4
    assert cache_key(request, CacheScope("t")) == cache_key(request, CacheScope("t"))
