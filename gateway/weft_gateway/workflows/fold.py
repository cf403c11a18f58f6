"""Constant folding: parts of operators that have the same value in all rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft_gateway.workflows.graph import Branch, Case, Format, Operator
from weft_gateway.workflows.rename import Changes, rebuilt
from weft_gateway.workflows.templates import (
    Constant,
    Part,
    Placeholder,
    Template,
    TemplateError,
    Tree,
    joined,
)


class Folder:
    """Folds operators in topological order. known: names whose value is the same in all rows; the
    folder adds the operators that turn out to be constant.
    """

    def __init__(self, known: dict[str, Any]) -> None:
        self.known = known

    def operator(self, one: Operator) -> tuple[Operator, list[str]]:
        """Return the folded operator, and what was done."""
        done: list[str] = []
        folded = Changes(self._text, self._value, lambda condition: condition).operator(one)
        if folded != one:
            done.append("constants are part of its text")
        if isinstance(folded.body, Branch):
            folded = self._cases(folded, folded.body, done)
        if folded.when is not None and (verdict := self._decided(folded.when)) is not None:
            if verdict:
                folded = rebuilt(folded, when=None)
                done.append("its condition always holds")
            elif folded.for_each is None:
                return self._skipped(one), ["its condition never holds"]
        if (
            isinstance(folded.body, Format)
            and folded.body.template.is_constant
            and folded.for_each is None
            and folded.when is None
            and folded.on_error == "fail"
        ):
            self.known[one.name] = folded.body.template.text({})
        return folded, done

    def _skipped(self, one: Operator) -> Operator:
        """An operator with the value None."""
        self.known[one.name] = None
        never = Template.parse("{{ false }}")
        return rebuilt(one, body=Format(Template.constant("")), when=never, idempotent=False)

    def _cases(self, one: Operator, body: Branch, done: list[str]) -> Operator:
        kept: list[Case] = []
        for case in body.cases:
            verdict = self._decided(case.when) if case.when is not None else None
            if verdict is False:
                continue
            kept.append(Case(None, case.body) if verdict else case)
            if kept[-1].when is None:
                break
        if tuple(kept) == body.cases:
            return one
        done.append(f"{len(kept)} of {len(body.cases)} cases can hold")
        return rebuilt(one, body=Branch(tuple(kept)))

    def _decided(self, condition: Template) -> bool | None:
        """Whether a condition holds, None if it depends on the row or fails."""
        if all(name in self.known for name in condition.names):
            try:
                return bool(condition.value(self.known))
            except TemplateError:
                return None
        return None

    def _value(self, template: Template) -> Tree:
        if template.is_expression and all(name in self.known for name in template.names):
            try:
                return _frozen(template.value(self.known))
            except TemplateError:
                return template
        # A text must stay a text, even if all that remains of it is one expression.
        text = self._text(template)
        return template if text.is_expression else text

    def _text(self, template: Template) -> Template:
        parts: list[Part] = []
        for part in template.parts:
            parts.append(part)
            if isinstance(part, Placeholder):
                alone = template.with_parts((part,))
                if all(name in self.known for name in alone.names):
                    try:
                        parts[-1] = Constant(alone.text(self.known))
                    except TemplateError:
                        continue
        return template.with_parts(joined(parts))


def _frozen(value: Any) -> Tree:
    """A JSON value as constant arguments: its texts are not parsed."""
    if isinstance(value, str):
        return Template.constant(value)
    if isinstance(value, Mapping):
        return {key: _frozen(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_frozen(one) for one in value)
    return value  # type: ignore[no-any-return]
