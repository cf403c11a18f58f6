"""Nodes of workflows in Python, before they have names: see `weft_run.workflow`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from weft_run.language.check import WorkflowError
from weft_run.language.graph import InputType, Operator, operator
from weft_run.language.templates import Template, TemplateError, Tree

_NUMBERS: Final = count()
# Returns the name of an input or node.
Resolve = Callable[["Input | Node"], str]


@dataclass(frozen=True, slots=True)
class Input:
    """A column of the rows."""

    name: str
    type: InputType


@dataclass(eq=False)
class Node:
    """An operator. name: None for an automatic one. body: makes its body once all nodes have names.
    parts: all that it reads. inner: the nodes of a loop's body. file, line: of the program.
    """

    kind: str
    name: str | None
    body: Callable[[Resolve], Any]
    parts: tuple[Text, ...]
    options: Mapping[str, Any]
    line: int = 0
    file: str = ""
    inner: tuple[Node, ...] = ()
    number: int = field(default_factory=lambda: next(_NUMBERS))

    def __post_init__(self) -> None:
        """Compile the condition. Raises WorkflowError."""
        self.when: Text | None = None
        names = {name: one for part in self.parts for name, one in part.names.items()}
        if self.options.get("when") is not None:
            self.when = text_of(self.options["when"], names)
        each = self.options.get("for_each")
        if each is not None and not isinstance(each, Input | Node):
            raise WorkflowError(f"for_each is an input or a node, not {type(each).__name__}")
        on_error = self.options.get("on_error", "fail")
        if on_error not in ("fail", "value"):
            raise WorkflowError(f"on_error is 'fail' or 'value', not {on_error!r}")
        tool = self.kind in ("python", "http")
        if tool and self.options.get("retries") and not self.options.get("idempotent"):
            raise WorkflowError("a tool is retried only with idempotent=True")
        if self.options.get("idempotent") and self.kind in ("llm", "format", "loop"):
            raise WorkflowError("'idempotent' is for python, sql and http")

    def reads(self) -> Iterator[Input | Node]:
        """Yield the inputs and nodes that it reads, without those of a loop's body."""
        own = set(self.inner)
        found = [one for part in self.parts for one in part.reads()]
        found += self.when.reads() if self.when is not None else []
        for inner in self.inner:
            found += inner.reads()
        each = self.options.get("for_each")
        found += [each] if each is not None else []
        yield from (one for one in found if one not in own)

    def operator(self, resolve: Resolve) -> Operator:
        """Return the operator. Raises WorkflowError."""
        each = self.options.get("for_each")
        return operator(
            resolve(self),
            self.body(resolve),
            for_each=None if each is None else resolve(each),
            when=None if self.when is None else self.when.template(resolve),
            on_error=self.options.get("on_error", "fail"),
            idempotent=self.options.get("idempotent", False),
            retries=self.options.get("retries"),
            line=self.line,
            file=self.file,
        )


# The values that a name in a text can stand for.
Reference = Input | Node | tuple["Reference", ...]


class Text:
    """A template with the inputs and nodes that its names stand for, or a JSON value with inputs
    and nodes inside.
    """

    def __init__(
        self, source: Any, names: Mapping[str, Reference], *, is_tree: bool = False
    ) -> None:
        self.source = source
        self.names = names
        self._is_tree = is_tree

    def reads(self) -> list[Input | Node]:
        """Return the inputs and nodes that the text reads."""
        if self._is_tree:
            return list(_inside(self.source))
        used = set(Template.parse(self.source).names)
        return [one for name, bound in self.names.items() if name in used for one in _flat(bound)]

    def template(self, resolve: Resolve) -> Template:
        """Return the template with names."""
        return Template.parse(
            self.source, {name: _named(one, resolve) for name, one in self.names.items()}
        )

    def tree(self, resolve: Resolve) -> Tree:
        """Return the value with templates in the places of inputs and nodes."""
        return _tree(self.source, resolve) if self._is_tree else self.template(resolve)


def text_of(source: str | Input | Node | Text, names: Mapping[str, Reference]) -> Text:
    """Return a text; an input or a node stands for its value. Raises WorkflowError for an invalid
    template.
    """
    if isinstance(source, Text):
        return source
    if isinstance(source, Input | Node):
        return Text("{{ value }}", {"value": source})
    if not isinstance(source, str):
        raise WorkflowError(f"a text is a str, an input or a node, not {type(source).__name__}")
    try:
        Template.parse(source)
    except TemplateError as error:
        raise WorkflowError(f"template {source!r}: {error}") from None
    return Text(source, names)


def tree_of(value: Any) -> Text:
    """Return a JSON value with inputs and nodes inside."""
    if isinstance(value, Text):
        return value
    return Text(value, {}, is_tree=True)


def binding(name: str, value: Any) -> Reference:
    """Return what a name in a text stands for. Raises WorkflowError."""
    if isinstance(value, Input | Node):
        return value
    if isinstance(value, list | tuple):
        return tuple(binding(name, one) for one in value)
    kind = type(value).__name__
    raise WorkflowError(f"{name!r} stands for an input, a node or a list of them, not for a {kind}")


def _inside(value: Any) -> Iterator[Input | Node]:
    if isinstance(value, Input | Node):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _inside(one)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for one in value:
            yield from _inside(one)


def _flat(reference: Reference) -> Iterator[Input | Node]:
    if isinstance(reference, tuple):
        for one in reference:
            yield from _flat(one)
    else:
        yield reference


def _named(reference: Reference, resolve: Resolve) -> Any:
    if isinstance(reference, tuple):
        return tuple(_named(one, resolve) for one in reference)
    return resolve(reference)


def _tree(value: Any, resolve: Resolve) -> Tree:
    if isinstance(value, Input | Node):
        return Template.parse("{{ value }}", {"value": resolve(value)})
    if isinstance(value, Mapping):
        return {str(key): _tree(one, resolve) for key, one in value.items()}
    if isinstance(value, str):
        return Template.constant(value)
    if isinstance(value, Sequence):
        return tuple(_tree(one, resolve) for one in value)
    if value is None or isinstance(value, bool | int | float):
        return value
    raise WorkflowError(f"an argument is JSON, an input or a node, not {type(value).__name__}")
