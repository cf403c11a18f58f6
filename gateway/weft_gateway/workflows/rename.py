"""Changes of the templates in operators, for rewrites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from weft_gateway.workflows.graph import (
    Body,
    Branch,
    Case,
    Format,
    Http,
    LangGraph,
    Llm,
    Loop,
    Message,
    Operator,
    Python,
    Simple,
    Sql,
    operator,
)
from weft_gateway.workflows.templates import Template, Tree


@dataclass(frozen=True, slots=True)
class Changes:
    """Replacements of templates. text: in prompts and other texts. value: as arguments of tools.
    condition: in `when` and `until`. names: of lists in `for_each`.
    """

    text: Callable[[Template], Template]
    value: Callable[[Template], Tree]
    condition: Callable[[Template], Template]
    names: Mapping[str, str] = field(default_factory=dict)

    def operator(self, one: Operator) -> Operator:
        """Return the operator with all its templates replaced."""
        each = one.for_each
        return rebuilt(
            one,
            body=self.body(one.body),
            for_each=None if each is None else self.names.get(each, each),
            when=None if one.when is None else self.condition(one.when),
        )

    def body(self, body: Body) -> Body:
        """Return the body with all its templates replaced."""
        match body:
            case Loop():
                inner = tuple(self.operator(one) for one in body.body)
                return replace(body, body=inner, until=self.condition(body.until))
            case Branch():
                return Branch(tuple(self._case(one) for one in body.cases))
        return self._simple(body)

    def _case(self, case: Case) -> Case:
        when = None if case.when is None else self.condition(case.when)
        return Case(when, self._simple(case.body))

    def _simple(self, body: Simple) -> Simple:
        match body:
            case Llm():
                messages = tuple(Message(one.role, self.text(one.content)) for one in body.messages)
                return replace(body, messages=messages)
            case Format():
                return Format(self.text(body.template))
            case Python():
                named = {name: self._tree(one) for name, one in body.named.items()}
                return Python(body.function, tuple(map(self._tree, body.arguments)), named)
            case LangGraph():
                state = {name: self._tree(one) for name, one in body.state.items()}
                return LangGraph(body.graph, state)
            case Sql():
                parameters = {name: self._tree(one) for name, one in body.parameters.items()}
                return Sql(body.connection, self.text(body.query), parameters, body.write)
            case Http():
                headers = {name: self.text(one) for name, one in body.headers.items()}
                return Http(body.method, self.text(body.url), headers, self._tree(body.body))

    def _tree(self, tree: Tree) -> Tree:
        if isinstance(tree, Template):
            return self.value(tree)
        if isinstance(tree, Mapping):
            return {key: self._tree(one) for key, one in tree.items()}
        if isinstance(tree, list | tuple):
            return tuple(self._tree(one) for one in tree)
        return tree


def renamed(one: Operator, names: Mapping[str, str]) -> Operator:
    """Return the operator with each name that it reads replaced by `names[name]`."""

    def rename(template: Template) -> Template:
        return template.renamed(names)

    return Changes(rename, rename, rename, names).operator(one) if names else one


def rebuilt(one: Operator, **fields: Any) -> Operator:
    """Return the operator with some fields replaced, and its inputs computed again."""
    kept = ("body", "for_each", "when", "on_error", "idempotent", "retries", "line", "file")
    given = {name: fields.get(name, getattr(one, name)) for name in kept}
    return operator(one.name, given.pop("body"), **given)
