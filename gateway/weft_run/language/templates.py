"""Templates of prompts and arguments: Jinja2, cut into constants and placeholders.

A template is `constant, placeholder, constant, ...`. A placeholder is one `{{ expression }}`, or a
block from `{% for %}` or `{% if %}` to its end. Radix trees compare the constants, rewrites follow
the names. Templates are sandboxed and deterministic: they have no clock, no random numbers, no
imports and no assignment, and a missing value is an error, not an empty text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from weft_run.language.jinja import Compiled, TemplateError, compiled, dumped, pieces

__all__ = ["Constant", "Part", "Placeholder", "Reference", "Template", "TemplateError", "Tree"]


@dataclass(frozen=True, slots=True)
class Constant:
    """Text that is the same in all rows."""

    text: str


@dataclass(frozen=True, slots=True)
class Placeholder:
    """An expression or a block. source: its Jinja2 text. names: the names in `source` that come
    from the scope, sorted.
    """

    source: str
    names: tuple[str, ...]


Part = Constant | Placeholder
# The operator or input that a name stands for, or a list of them.
Reference = str | tuple["Reference", ...]


@dataclass(frozen=True, slots=True)
class Template:
    """A template. Two templates are equal if they have the same parts and bindings.

    source: the text that the user wrote, for messages. bindings: names in the parts that stand for
    an operator or input with another name, or for a list of them; all other names stand for
    themselves.
    """

    source: str = field(compare=False)
    parts: tuple[Part, ...] = ()
    bindings: Mapping[str, Reference] = field(default_factory=dict)

    @classmethod
    def parse(cls, source: str, bindings: Mapping[str, Reference] | None = None) -> Template:
        """Compile a text. Raises TemplateError with the line in the text."""
        parts: list[Part] = []
        for text, names in pieces(source):
            if names is not None:
                parts.append(Placeholder(text, names))
            elif parts and isinstance(parts[-1], Constant):
                # Equal templates compare equal.
                parts[-1] = Constant(parts[-1].text + text)
            elif text:
                parts.append(Constant(text))
        used = {name for part in parts if isinstance(part, Placeholder) for name in part.names}
        kept = {
            name: reference
            for name, reference in sorted((bindings or {}).items())
            if name in used and reference != name
        }
        return cls(source, tuple(parts), kept)

    @classmethod
    def constant(cls, text: str) -> Template:
        """A template without placeholders. `text` is not parsed."""
        return cls(text, (Constant(text),) if text else ())

    @property
    def names(self) -> tuple[str, ...]:
        """The free names: inputs, operators and reserved names that the template reads, sorted."""
        return tuple(sorted({name for names in self.names_of_parts() for name in names}))

    def names_of_parts(self) -> list[tuple[str, ...]]:
        """Return the free names that each part reads: none for constants."""
        bound = self.bindings
        return [
            tuple(sorted({one for name in part.names for one in _leaves(bound.get(name, name))}))
            if isinstance(part, Placeholder)
            else ()
            for part in self.parts
        ]

    @property
    def is_expression(self) -> bool:
        """Whether the template is exactly one `{{ expression }}`, so that it has a value of any
        type.
        """
        return len(self.parts) == 1 and _expression(self.parts[0]) is not None

    def text(self, scope: Mapping[str, Any]) -> str:
        """Render. Lists and mappings appear as JSON, None as an empty text. Raises TemplateError
        if a value is missing or an expression fails.
        """
        return "".join(self.rendered(scope))

    def rendered(self, scope: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the text of each part, in order. Raises TemplateError."""
        inner = self._bound(scope)
        return tuple(
            part.text if isinstance(part, Constant) else compiled(part.source).text(inner)
            for part in self.parts
        )

    def value(self, scope: Mapping[str, Any]) -> Any:
        """Return the value of a single `{{ expression }}`; otherwise the text. Raises
        TemplateError.
        """
        if len(self.parts) == 1:
            expression = _expression(self.parts[0])
            if expression is not None:
                return expression.value(self._bound(scope))
        return self.text(scope)

    def renamed(self, names: Mapping[str, Reference]) -> Template:
        """Read other operators: each name that the template reads is replaced by `names[name]`."""
        bindings: dict[str, Reference] = {}
        for part in self.parts:
            for name in part.names if isinstance(part, Placeholder) else ():
                reference = _replaced(self.bindings.get(name, name), names)
                if reference != name:
                    bindings[name] = reference
        return replace(self, bindings=dict(sorted(bindings.items())))

    def canonical(self) -> list[Any]:
        """Return the parts as JSON: the same for templates that differ only in spaces inside of
        `{{ }}` and in names that stand for the same operators.
        """
        return [
            part.text
            if isinstance(part, Constant)
            else dumped(part.source, {name: self.bindings.get(name, name) for name in part.names})
            for part in self.parts
        ]

    def _bound(self, scope: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self.bindings:
            return scope
        bound = {name: _looked_up(one, scope) for name, one in self.bindings.items()}
        return {**scope, **bound}


_Leaf = TypeVar("_Leaf")
# Arguments of tools: JSON with templates as leaves.
Tree = Template | str | int | float | bool | None | Sequence["Tree"] | Mapping[str, "Tree"]


def leaves(tree: Any, kind: type[_Leaf]) -> Iterable[_Leaf]:
    """Yield the leaves of a tree that are of this type."""
    if isinstance(tree, kind):
        yield tree
    elif isinstance(tree, Mapping):
        for one in tree.values():
            yield from leaves(one, kind)
    elif isinstance(tree, list | tuple):
        for one in tree:
            yield from leaves(one, kind)


def evaluated(tree: Tree, scope: Mapping[str, Any]) -> Any:
    """Return the JSON value of a tree in a scope. Raises TemplateError."""
    if isinstance(tree, Template):
        return tree.value(scope)
    if isinstance(tree, Mapping):
        return {key: evaluated(one, scope) for key, one in tree.items()}
    if isinstance(tree, list | tuple):
        return [evaluated(one, scope) for one in tree]
    return tree


def _expression(part: Part) -> Compiled | None:
    if isinstance(part, Placeholder):
        found = compiled(part.source)
        return found if found.is_expression else None
    return None


def _leaves(reference: Reference) -> Iterable[str]:
    if isinstance(reference, str):
        yield reference
    else:
        for one in reference:
            yield from _leaves(one)


def _replaced(reference: Reference, names: Mapping[str, Reference]) -> Reference:
    if isinstance(reference, str):
        return names.get(reference, reference)
    return tuple(_replaced(one, names) for one in reference)


def _looked_up(reference: Reference, scope: Mapping[str, Any]) -> Any:
    if isinstance(reference, str):
        if reference not in scope:
            raise TemplateError(f"{reference!r} has no value")
        return scope[reference]
    return [_looked_up(one, scope) for one in reference]
