"""Batch workflows in Python: the same graphs as the YAML format.

    from weft_run import workflow as w

    question = w.input("question", "str")
    views = [w.llm(system=f"You are {who}.", user=question) for who in ("a lawyer", "a sceptic")]
    verdict = w.llm(user="{{ question }}\\n{{ views }}", question=question, views=views)
    graph = w.build(answer=verdict)
    print(graph.explain("questions.jsonl"))
    graph.run("questions.jsonl", out="answers.jsonl", gateway="http://127.0.0.1:8080")

Nothing runs before `Graph.run`: the functions return nodes. Texts are Jinja2 templates; the names
in them are keyword arguments, and stand for an input, a node, or a list of those. Guide:
docs/guides/batch-workflows.md. Reference of the format: docs/reference/workflows.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from weft_run.language.check import WorkflowError
from weft_run.language.graph import (
    Body,
    Branch,
    Case,
    Format,
    Http,
    InputType,
    Llm,
    Loop,
    Message,
    Python,
    Sql,
    operator,
)
from weft_run.language.langgraph import from_graph
from weft_run.language.spec_models import OperatorSpec
from weft_run.workflow_graph import Graph, Result, build
from weft_run.workflow_nodes import Bound, Input, Node, Text, binding, mark_of, text_of, tree_of
from weft_run.yaml_errors import dotted, reason

__all__ = [
    "Graph",
    "Input",
    "Node",
    "Result",
    "WorkflowError",
    "branch",
    "build",
    "case",
    "format",
    "from_langgraph",
    "http",
    "input",
    "llm",
    "loop",
    "python",
    "sql",
    "text",
]

# A text: a template, or an input or node whose value it is.
Prompt = str | Input | Node | Text
_OPTIONS = ("for_each", "when", "on_error", "idempotent", "retries")
_REQUEST = (
    "model", "temperature", "max_tokens", "seed", "top_p", "stop", "response_format", "parameters",
)  # fmt: skip


class LlmNode(Node):
    """A chat completion. messages: (role, text) of its prompt. request: its parameters."""

    messages: tuple[tuple[str, Text], ...]
    request: Mapping[str, Any]

    def reply(self, user: Prompt, *, name: str | None = None, **more: Any) -> LlmNode:
        """Continue the conversation: a call with this call's messages, its answer, and `user`. The
        prompt of this call and its answer are then found in the KV cache.

        more: as in `llm`. The parameters of the request are those of this call unless given.
        """
        if self.operator.for_each is not None or self.operator.on_error == "value":
            raise WorkflowError("a call with for_each or on_error='value' has no single answer")
        before = (*self.messages, ("assistant", text_of(self, {})))
        return _llm(before, user, name, {**self.request, **more})


def from_langgraph(graph: str, *, inputs: Sequence[str]) -> Graph:
    """A LangGraph graph as a workflow: each row runs the graph, and the run makes the calls of its
    nodes. The result has the column `state`, as `graph.invoke` returns it.

    graph: `module:name` of a StateGraph, compiled or not. inputs: the columns that are its input.
    Raises WorkflowError. Guide: docs/guides/langgraph.md.
    """
    return Graph(from_graph(graph, inputs))


def input(name: str, type: str = "any") -> Input:
    """A column of the rows. type: str, int, float, bool, list, dict or any."""
    try:
        return Input(name, InputType(type))
    except ValueError:
        allowed = ", ".join(InputType)
        raise WorkflowError(f"input {name!r}: unknown type {type!r}; allowed: {allowed}") from None


def llm(
    user: Prompt | None = None,
    *,
    system: Prompt | None = None,
    messages: Sequence[tuple[str, Prompt]] = (),
    name: str | None = None,
    **more: Any,
) -> LlmNode:
    """One chat completion, with `user` and an optional `system`, or with `messages`, each a role
    and a text. The temperature is 0 unless given.

    more: parameters of the request (model, temperature, max_tokens, seed, top_p, stop,
    response_format, parameters), options of an operator (for_each, when, on_error, retries), and
    the names in the texts. Raises WorkflowError.
    """
    if (user is None) == (not messages) or (messages and system is not None):
        raise WorkflowError("llm: needs 'user' with an optional 'system', or 'messages'")
    names = _split(more, _REQUEST)[2]
    before = [("system", text_of(system, names))] if system is not None else []
    before += [(role, text_of(one, names)) for role, one in messages]
    return _llm(tuple(before), user, name, more)


def text(template: str, **names: Any) -> Text:
    """A text with its own names, wherever a text is expected: `when=w.text("{{ n > 1 }}", n=n)`."""
    return text_of(template, _bindings(names))


def format(template: str, *, name: str | None = None, **more: Any) -> Node:
    """A text. more: options of an operator, and the names in the text."""
    options, _, names = _split(more)
    made = text_of(template, names)
    return _made(
        Node, {"format": template}, name, Format(made.template), made.reads, options, names
    )


def python(
    function: str | Callable[..., Any],
    *arguments: Any,
    name: str | None = None,
    for_each: Input | Node | None = None,
    when: str | Text | None = None,
    on_error: Literal["fail", "value"] = "fail",
    idempotent: bool = False,
    retries: int | None = None,
    **named: Any,
) -> Node:
    """A call of a function: an importable one, or `module:name`. Arguments are JSON with inputs and
    nodes inside; texts in them are no templates. With `for_each` and no argument, it gets the item.
    """
    if for_each is not None and not arguments and not named:
        arguments = (text_of("{{ item }}", {}),)
    place, reads = _place_of(function), list[Input | Node]()
    positional = tuple(tree_of(one, reads) for one in arguments)
    body = Python(place, positional, {key: tree_of(one, reads) for key, one in named.items()})
    options = {
        "for_each": for_each, "when": when, "on_error": on_error, "idempotent": idempotent,
        "retries": retries,
    }  # fmt: skip
    return _made(Node, {"python": {"function": place}}, name, body, reads, options)


def sql(
    query: str,
    *,
    connection: str = "default",
    parameters: Mapping[str, Any] | None = None,
    write: bool = False,
    name: str | None = None,
    **more: Any,
) -> Node:
    """A statement on a connection of the runner; its value is a list of rows. parameters: values
    that the database binds, JSON with inputs and nodes inside.
    """
    options, _, names = _split(more)
    statement = text_of(query, names)
    reads = list(statement.reads)
    values = {key: tree_of(one, reads) for key, one in (parameters or {}).items()}
    body = Sql(connection, statement.template, values, write)
    spec = {"query": query, "connection": connection, "write": write}
    return _made(Node, {"sql": spec}, name, body, reads, options, names)


def http(
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    json: Any = None,
    name: str | None = None,
    **more: Any,
) -> Node:
    """A request; its value is the JSON of the answer, or its text. json: the body, JSON with inputs
    and nodes inside.
    """
    options, _, names = _split(more)
    place = text_of(url, names)
    heads = {key: text_of(one, names) for key, one in (headers or {}).items()}
    reads = [one for text in (place, *heads.values()) for one in text.reads]
    fields = {key: one.template for key, one in heads.items()}
    body = Http(method, place.template, fields, tree_of(json, reads))
    spec = {"url": url, "method": method, "headers": dict(headers or {})}
    return _made(Node, {"http": spec}, name, body, reads, options, names)


def case(when: str | None, then: Node, **names: Any) -> tuple[Text | None, Node]:
    """A case of a branch. then: a node without options. when: None always holds."""
    own = then.operator
    if own != operator(own.name, own.body) or isinstance(own.body, Branch | Loop):
        raise WorkflowError("case: 'then' is an llm, format, python, sql or http without options")
    return None if when is None else text_of(when, _bindings(names)), then


def branch(*cases: tuple[Text | None, Node], name: str | None = None, **more: Any) -> Node:
    """The value of the first case whose condition holds. Only this case runs."""
    options, _, names = _split(more)
    found, reads = [], list[Input | Node]()
    for when, then in cases:
        inner = then.operator.body
        assert not isinstance(inner, Branch | Loop)
        found.append(Case(None if when is None else when.template, inner))
        reads += [*(when.reads if when is not None else ()), *then.reads]
        names = {**(when.names if when is not None else {}), **names}
    spec = {"branch": [then.spec for _, then in cases]}
    return _made(Node, spec, name, Branch(tuple(found)), reads, options, names)


def loop(
    *body: Node,
    until: str,
    max: int,
    unmet: Literal["keep", "fail"] = "keep",
    name: str | None = None,
    **more: Any,
) -> Node:
    """Rounds of `body`, until the condition holds after a round, or `max` rounds have run. unmet:
    if it never holds, "keep" keeps the last round, and "fail" is an error.

    Templates of the body read the round before as `previous`, a mapping from the names of the nodes
    (None in the first round). `until` reads these names, too. The value of the loop is the mapping
    of the last round.
    """
    options, _, names = _split(more)
    end = text_of(until, names)
    spec = {"loop": {"max": max, "until": until, "unmet": unmet}, "body": {"inner": {"format": ""}}}
    made = Loop(tuple(one.operator for one in body), end.template, max, unmet)
    node = _made(Node, spec, name, made, end.reads, options, names)
    node.inner = body
    return node


def _llm(
    before: tuple[tuple[str, Text], ...],
    user: Prompt | None,
    name: str | None,
    more: Mapping[str, Any],
) -> LlmNode:
    options, request, names = _split(more, _REQUEST)
    messages = before if user is None else (*before, ("user", text_of(user, names)))
    spec = {"llm": {"user": "", **request}}
    checked = _checked(spec).llm
    prompt = tuple(Message(role, one.template) for role, one in messages)  # type: ignore[arg-type]
    body = Llm(prompt, checked.model or "", checked.request())
    reads = [one for _, text in messages for one in text.reads]
    names = {**{key: one for _, text in messages for key, one in text.names.items()}, **names}
    node = _made(LlmNode, spec, name, body, reads, options, names)
    node.messages, node.request = messages, request
    return node


_N = TypeVar("_N", bound=Node)


def _made(
    kind: type[_N],
    spec: Mapping[str, Any],
    name: str | None,
    body: Body,
    reads: Sequence[Input | Node],
    options: Mapping[str, Any],
    names: Mapping[str, Bound] | None = None,
) -> _N:
    """Return a node. spec: its body as in YAML, for the checks. names: those of its texts."""
    each, when = options.get("for_each"), None
    if each is not None and not isinstance(each, Input | Node):
        raise WorkflowError(f"for_each is an input or a node, not {type(each).__name__}")
    if options.get("when") is not None:
        when = text_of(options["when"], names or {})
    given = {key: one for key, one in options.items() if key not in ("for_each", "when")}
    checked = _checked({**spec, **given})
    line, file = _place()
    made = operator(
        "",
        body,
        for_each=None if each is None else mark_of(each),
        when=None if when is None else when.template,
        on_error=checked.on_error,
        idempotent=checked.idempotent,
        retries=checked.retries,
        line=line,
        file=file,
    )
    every = [*reads, *(when.reads if when is not None else ()), *([each] if each else ())]
    return kind(spec, name, made, every)


def _split(
    more: Mapping[str, Any], parameters: Collection[str] = ()
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Bound]]:
    """Return options of the operator, parameters of the request, and names in texts. parameters:
    those that the operator has.
    """
    options = {key: more[key] for key in _OPTIONS if key in more}
    request = {key: more[key] for key in parameters if key in more}
    names = {key: one for key, one in more.items() if key not in options and key not in request}
    return options, request, _bindings(names)


def _bindings(names: Mapping[str, Any]) -> dict[str, Bound]:
    return {name: binding(name, one) for name, one in names.items()}


def _place_of(function: str | Callable[..., Any]) -> str:
    if isinstance(function, str):
        return function
    place = f"{function.__module__}:{function.__qualname__}"
    if "<" in place or "." in function.__qualname__:
        raise WorkflowError(f"python: {place} cannot be imported; use a function of a module")
    return place


def _checked(fields: Mapping[str, Any]) -> Any:
    try:
        return OperatorSpec.model_validate(fields)
    except ValidationError as error:
        lines = [f"{dotted(one['loc'])}{reason(one)}" for one in error.errors()]
        raise WorkflowError("\n".join(lines)) from None


def _place() -> tuple[int, str]:
    """The line and the file of the program that made a node."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return frame.f_lineno, frame.f_code.co_filename
