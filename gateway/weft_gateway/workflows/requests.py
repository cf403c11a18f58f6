"""Requests: the bodies of operators with their templates rendered, for one row.

A request contains all that its execution needs, and no name of a workflow. Two requests of
deterministic operators with one `signature` have the same answer, in any row: one execution is
enough. The signature of a call of a model is also its key in the prompt cache (Helium 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft_gateway.workflows.graph import Format, Http, Llm, Python, Simple, Sql, digest
from weft_gateway.workflows.templates import evaluated


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """One chat completion. messages: (role, content)."""

    messages: tuple[tuple[str, str], ...]
    model: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PythonRequest:
    """One call of a function, `module:name`. The arguments are JSON values."""

    function: str
    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """One statement. The database binds `parameters` by name."""

    connection: str
    query: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    write: bool = False


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request with a JSON body; None sends no body."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True, slots=True)
class Text:
    """A text that a `Format` made: its execution returns `text`."""

    text: str


Request = LlmRequest | PythonRequest | SqlRequest | HttpRequest | Text


def rendered(body: Simple, scope: Mapping[str, Any], model: str) -> Request:
    """Render a body. model: the workflow's default. Raises TemplateError."""
    match body:
        case Llm():
            messages = tuple((one.role, one.content.text(scope)) for one in body.messages)
            return LlmRequest(messages, body.model or model, body.parameters)
        case Format():
            return Text(body.template.text(scope))
        case Python():
            arguments = tuple(evaluated(body.arguments, scope))
            return PythonRequest(body.function, arguments, evaluated(body.named, scope))
        case Sql():
            parameters = evaluated(body.parameters, scope)
            return SqlRequest(body.connection, body.query.text(scope), parameters, body.write)
        case Http():
            headers = {name: one.text(scope) for name, one in body.headers.items()}
            return HttpRequest(
                body.method, body.url.text(scope), headers, evaluated(body.body, scope)
            )


def signature(request: Request) -> str:
    """Return a digest of a request, in hex. It has a meaning only for requests of deterministic
    operators: sampled answers are never merged.
    """
    return digest(request)


@dataclass(frozen=True, slots=True)
class CacheScope:
    """All that the answer to a prompt depends on, except for the prompt. tenant: answers are never
    shared between tenants. revision: of the model's weights. template: digest of the chat template.
    """

    tenant: str
    revision: str = ""
    template: str = ""


def cache_key(request: LlmRequest, scope: CacheScope) -> str:
    """Return the key of a greedy or seeded call in the prompt cache, in hex."""
    return digest([scope, request])
