"""Nodes of workflows in Python, before they have names: see `weft_run.workflow`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

from weft_run.language.check import WorkflowError
from weft_run.language.graph import InputType, Operator
from weft_run.language.templates import Reference, Template, TemplateError, Tree

_NUMBERS: Final = count()


@dataclass(frozen=True, slots=True)
class Input:
    """A column of the rows."""

    name: str
    type: InputType


@dataclass(eq=False)
class Node:
    """An operator. spec: its kind, and what YAML has for it. name: None for an automatic one.
    operator: with the marks of nodes in the places of their names. reads: all that it reads. inner:
    the nodes of a loop's body.
    """

    spec: Mapping[str, Any]
    name: str | None
    operator: Operator
    reads: Sequence[Input | Node]
    inner: tuple[Node, ...] = ()
    number: int = field(default_factory=lambda: next(_NUMBERS))

    def __post_init__(self) -> None:
        """Give the operator its mark, which is no valid name."""
        self.mark = f"node {self.number}"
        self.operator = replace(self.operator, name=self.mark)


# The values that a name in a text can stand for.
Bound = Input | Node | tuple["Bound", ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A template that reads inputs and nodes. names: those that it was made with."""

    template: Template
    reads: tuple[Input | Node, ...]
    names: Mapping[str, Bound]


def text_of(source: str | Input | Node | Text, names: Mapping[str, Bound]) -> Text:
    """Return a text; an input or a node stands for its value. Raises WorkflowError for an invalid
    template.
    """
    if isinstance(source, Text):
        return source
    if isinstance(source, Input | Node):
        return text_of("{{ value }}", {"value": source})
    if not isinstance(source, str):
        raise WorkflowError(f"a text is a str, an input or a node, not {type(source).__name__}")
    try:
        template = Template.parse(source)
    except TemplateError as error:
        raise WorkflowError(f"template {source!r}: {error}") from None
    used = {name: names[name] for name in template.names if name in names}
    marked = template.renamed({name: _marked(one) for name, one in used.items()})
    return Text(marked, tuple(leaf for one in used.values() for leaf in _flat(one)), names)


def tree_of(value: Any, reads: list[Input | Node]) -> Tree:
    """Return a JSON value with templates in the places of inputs, nodes and texts, which are added
    to `reads`. Texts in the value are no templates. Raises WorkflowError.
    """
    if isinstance(value, Input | Node | Text):
        text = text_of(value, {})
        reads += text.reads
        return text.template
    if isinstance(value, Mapping):
        return {str(key): tree_of(one, reads) for key, one in value.items()}
    if isinstance(value, str):
        return Template.constant(value)
    if isinstance(value, Sequence):
        return tuple(tree_of(one, reads) for one in value)
    if value is None or isinstance(value, bool | int | float):
        return value
    raise WorkflowError(f"an argument is JSON, an input or a node, not {type(value).__name__}")


def binding(name: str, value: Any) -> Bound:
    """Return what a name in a text stands for. Raises WorkflowError."""
    if isinstance(value, Input | Node):
        return value
    if isinstance(value, list | tuple):
        return tuple(binding(name, one) for one in value)
    kind = type(value).__name__
    raise WorkflowError(f"{name!r} stands for an input, a node or a list of them, not for a {kind}")


def mark_of(one: Input | Node) -> str:
    """Return the name of an input, or the mark of a node."""
    return one.name if isinstance(one, Input) else one.mark


def _marked(bound: Bound) -> Reference:
    return tuple(map(_marked, bound)) if isinstance(bound, tuple) else mark_of(bound)


def _flat(bound: Bound) -> Iterator[Input | Node]:
    if isinstance(bound, tuple):
        for one in bound:
            yield from _flat(one)
    else:
        yield bound
