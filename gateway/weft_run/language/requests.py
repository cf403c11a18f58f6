"""Requests: the bodies of operators with their templates rendered, for one row.

A request contains all that its execution needs, and no name of a workflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft_run.language.graph import Format, Http, LangGraph, Llm, Python, Simple, Sql
from weft_run.language.templates import evaluated


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """One chat completion. messages: (role, content)."""

    messages: tuple[tuple[str, str], ...]
    model: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


class ChatRequest(LlmRequest):
    """A chat completion that the code of a tool made. The contents of its messages are whole
    messages, JSON, and its value is the whole answer.
    """

    __slots__ = ()


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
class GraphRequest:
    """One run of a LangGraph graph, `module:name`. state: its input, JSON."""

    graph: str
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Text:
    """A text that a `Format` made: its execution returns `text`."""

    text: str


Request = LlmRequest | PythonRequest | SqlRequest | HttpRequest | GraphRequest | Text


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
        case LangGraph():
            return GraphRequest(body.graph, evaluated(body.state, scope))
        case Sql():
            parameters = evaluated(body.parameters, scope)
            return SqlRequest(body.connection, body.query.text(scope), parameters, body.write)
        case Http():
            headers = {name: one.text(scope) for name, one in body.headers.items()}
            return HttpRequest(
                body.method, body.url.text(scope), headers, evaluated(body.body, scope)
            )
