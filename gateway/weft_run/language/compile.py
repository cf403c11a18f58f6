"""From the models of the YAML format to the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from graphlib import CycleError
from typing import Any, Final

from weft_run.language.graph import (
    Body,
    Branch,
    Case,
    Format,
    Http,
    Llm,
    Loop,
    Message,
    Operator,
    Python,
    Simple,
    Sql,
    Workflow,
    in_order,
    operator,
)
from weft_run.language.spec_models import (
    CaseSpec,
    HttpSpec,
    LlmSpec,
    OperatorSpec,
    PythonSpec,
    SqlSpec,
    WorkflowSpec,
)
from weft_run.language.templates import Template, TemplateError, Tree
from weft_run.yaml_errors import KeyPath, nearest

_ITEM: Final = "{{ item }}"


class Compiler:
    """Compiles one file and collects its errors: (path, reason, line within the text at the path).

    file: its name. line_of: the line of a path in the file.
    """

    def __init__(self, file: str, line_of: Callable[[KeyPath], int]) -> None:
        self.errors: list[tuple[KeyPath, str, int]] = []
        self._file = file
        self._line_of = line_of

    def workflow(self, spec: WorkflowSpec) -> Workflow:
        """Compile. After errors, the result lacks parts and must not be used."""
        operators = self._operators(spec.ops, ("ops",), {})
        line = self._line_of(("model",)) if spec.model else 0
        return Workflow(spec.name, spec.model, spec.inputs, operators, spec.outputs, line)

    def _operators(
        self, specs: Mapping[str, OperatorSpec], path: KeyPath, around: Mapping[str, OperatorSpec]
    ) -> tuple[Operator, ...]:
        known = {**around, **specs}
        return ordered([self._operator(name, one, (*path, name), known)
                        for name, one in specs.items()])  # fmt: skip

    def _operator(
        self, name: str, spec: OperatorSpec, path: KeyPath, known: Mapping[str, OperatorSpec]
    ) -> Operator:
        return operator(
            name,
            self._body(spec, path, known),
            for_each=spec.for_each,
            when=None if spec.when is None else self._template(spec.when, (*path, "when")),
            on_error=spec.on_error,
            idempotent=spec.idempotent,
            retries=spec.retries,
            line=self._line_of(path),
            file=self._file,
        )

    def _body(self, spec: OperatorSpec, path: KeyPath, known: Mapping[str, OperatorSpec]) -> Body:
        if spec.loop is not None:
            body = self._operators(spec.body or {}, (*path, "body"), known)
            until = self._template(spec.loop.until, (*path, "loop", "until"))
            return Loop(body, until, spec.loop.max, spec.loop.unmet)
        if spec.branch is not None:
            cases = enumerate(spec.branch)
            return Branch(
                tuple(self._case(one, (*path, "branch", index), known) for index, one in cases)
            )
        return self._simple(spec, path, known, spec.for_each is not None)

    def _case(self, spec: CaseSpec, path: KeyPath, known: Mapping[str, OperatorSpec]) -> Case:
        when = None if spec.when is None else self._template(spec.when, (*path, "when"))
        return Case(when, self._simple(spec, path, known, False))

    def _simple(
        self,
        spec: CaseSpec | OperatorSpec,
        path: KeyPath,
        known: Mapping[str, OperatorSpec],
        items: bool,
    ) -> Simple:
        if spec.llm is not None:
            messages = self._messages(spec.llm, (*path, "llm"), known)
            return Llm(messages, spec.llm.model or "", spec.llm.request())
        if spec.python is not None:
            return self._python(spec.python, (*path, "python"), items)
        if spec.sql is not None:
            return self._sql(spec.sql, (*path, "sql"))
        if spec.http is not None:
            return self._http(spec.http, (*path, "http"))
        return Format(self._template(spec.format or "", (*path, "format")))

    def _messages(
        self, spec: LlmSpec, path: KeyPath, known: Mapping[str, OperatorSpec]
    ) -> tuple[Message, ...]:
        found: list[Message] = []
        if spec.reply_to is not None:
            found += self._answered(spec.reply_to, path, known)
        if spec.system is not None:
            found.append(Message("system", self._template(spec.system, (*path, "system"))))
        if spec.user is not None:
            found.append(Message("user", self._template(spec.user, (*path, "user"))))
        for index, one in enumerate(spec.messages or ()):
            content = self._template(one.content, (*path, "messages", index, "content"))
            found.append(Message(one.role, content))
        return tuple(found)

    def _answered(
        self,
        name: str,
        path: KeyPath,
        known: Mapping[str, OperatorSpec],
        seen: tuple[str, ...] = (),
    ) -> list[Message]:
        """The messages of the operator `name`, and its answer."""
        at = (*path, "reply_to")
        spec = known.get(name)
        if spec is None:
            self.errors.append((at, f"no operator is named {name!r}{nearest(name, known)}", 1))
        elif spec.llm is None or spec.for_each is not None or spec.on_error == "value":
            reason = "is not an llm operator with one answer (without for_each, on_error: fail)"
            self.errors.append((at, f"{name!r} {reason}", 1))
        elif name in seen:
            self.errors.append((at, f"cycle: {' -> '.join([*seen, name])}", 1))
        else:
            before = spec.llm.reply_to
            found = self._answered(before, path, known, (*seen, name)) if before is not None else []
            found += self._messages(spec.llm.model_copy(update={"reply_to": None}), path, known)
            return [*found, answer(name)]
        return []

    def _python(self, spec: PythonSpec, path: KeyPath, items: bool) -> Python:
        at = (*path, "args")
        if isinstance(spec.args, dict):
            return Python(spec.function, (), self._trees(spec.args, at))
        given = [_ITEM] if spec.args is None and items else spec.args or ()
        return Python(spec.function, tuple(self._tree(one, at) for one in given))

    def _sql(self, spec: SqlSpec, path: KeyPath) -> Sql:
        parameters = self._trees(spec.parameters, (*path, "parameters"))
        query = self._template(spec.query, (*path, "query"))
        return Sql(spec.connection, query, parameters, spec.write)

    def _http(self, spec: HttpSpec, path: KeyPath) -> Http:
        headers = {
            name: self._template(one, (*path, "headers", name))
            for name, one in spec.headers.items()
        }
        body = self._tree(spec.body, (*path, "json"))
        return Http(spec.method, self._template(spec.url, (*path, "url")), headers, body)

    def _trees(self, values: Mapping[str, Any], path: KeyPath) -> dict[str, Tree]:
        return {name: self._tree(one, (*path, name)) for name, one in values.items()}

    def _tree(self, value: Any, path: KeyPath) -> Tree:
        if isinstance(value, str):
            return self._template(value, path)
        if isinstance(value, Mapping):
            return {str(key): self._tree(one, (*path, key)) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return tuple(self._tree(one, (*path, index)) for index, one in enumerate(value))
        return value  # type: ignore[no-any-return]

    def _template(self, text: str, path: KeyPath) -> Template:
        try:
            return Template.parse(text)
        except TemplateError as error:
            self.errors.append((path, f"template: {error}", error.line))
            return Template.constant(text)


def answer(name: str) -> Message:
    """The answer of an operator as a message of a later prompt."""
    return Message("assistant", Template.parse(f"{{{{ {name} }}}}"))


def ordered(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """Sort topologically. Operators with a cycle or a name that occurs twice stay in order: `check`
    reports them.
    """
    given = tuple(operators)
    if len({one.name for one in given}) < len(given):
        return given
    try:
        return in_order(given)
    except CycleError:
        return given
