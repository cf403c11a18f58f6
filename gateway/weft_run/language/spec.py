"""Workflows in YAML or JSON: text to graph, with file:line:column for each error.

weft: 1
inputs: {docs: list, question: str}
ops:
  facts:
    for_each: docs
    llm: {user: "{{ question }}\\n{{ item }}", max_tokens: 128}
  report:
    llm: {user: "{{ question }}{% for f in facts %}\\n- {{ f }}{% endfor %}"}
outputs: {report: report}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError

from weft_run import yaml_errors
from weft_run.language.check import Problem, WorkflowError, problems
from weft_run.language.compile import Compiler
from weft_run.language.graph import Workflow
from weft_run.language.spec_models import (
    NAME_PATTERN,
    CaseSpec,
    HttpSpec,
    LlmSpec,
    LoopSpec,
    MessageSpec,
    OperatorSpec,
    PythonSpec,
    SqlSpec,
    WorkflowSpec,
)
from weft_run.yaml_errors import KeyPath, nearest

_MODELS: Final[dict[str, type[BaseModel]]] = {
    "llm": LlmSpec, "messages": MessageSpec, "sql": SqlSpec, "http": HttpSpec, "loop": LoopSpec,
    "python": PythonSpec, "branch": CaseSpec, "ops": OperatorSpec, "body": OperatorSpec,
}  # fmt: skip


_NAME: Final = "a name has 1 to 64 ASCII letters, digits and underscores, and begins with no digit"


class _Loader(yaml.SafeLoader):
    """YAML with the scalars of JSON: `on`, `yes` and dates are texts."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012


for _tag, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"-?(0|[1-9][0-9]*)", "-0123456789"),
    ("float", r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?", "-0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first)
    )


def load(text: str, file: str = "workflow", most: int | None = None) -> Workflow:
    """Compile a workflow. file: its name, for messages. most: operators, with those of loops and
    branches. Raises WorkflowError, whose message has one line per error: file:line:column: path:
    reason.
    """
    try:
        root, raw = yaml_errors.read(text, _Loader)
    except yaml_errors.UnreadableError as error:
        at = "".join(f":{number}" for number in error.place or ())
        raise WorkflowError(f"{file}{at}: {error}") from None
    found: list[tuple[int, int, str]] = []
    for path, what in yaml_errors.duplicates(root):
        found.append((*yaml_errors.mark(root, path), f"{yaml_errors.dotted(path)}{what}"))
    try:
        spec = WorkflowSpec.model_validate(raw)
    except ValidationError as error:
        for item in error.errors():
            path, what = _described(item)
            found.append((*yaml_errors.mark(root, path), f"{yaml_errors.dotted(path)}{what}"))
        raise _error(file, found) from None
    # To compile many operators takes long.
    paths = list(_operators(spec.ops, ("ops",)))
    if most is not None and len(paths) > most:
        what = f"{len(paths)} operators; at most {most} are allowed"
        raise _error(file, [(*yaml_errors.mark(root, paths[most]), what)])
    compiler = Compiler(file, lambda path: yaml_errors.mark(root, path)[0])
    workflow = compiler.workflow(spec)
    for path, what, line in compiler.errors:
        found.append((*_within(root, path, line), f"{yaml_errors.dotted(path)}{what}"))
    if not found:
        for problem in problems(workflow):
            path = _path(problem)
            place = _word(root, path, problem.word, text)
            found.append((*place, f"{yaml_errors.dotted(path)}{problem.message}"))
    if found:
        raise _error(file, found)
    return workflow


def _operators(specs: Mapping[str, OperatorSpec], path: KeyPath) -> Iterator[KeyPath]:
    """Yield the paths of operators, of those inside, and of cases."""
    for name, one in specs.items():
        inner = (*path, name)
        yield inner
        yield from ((*inner, "branch", index) for index in range(len(one.branch or ())))
        yield from _operators(one.body or {}, (*inner, "body"))


def _described(error: Any) -> tuple[KeyPath, str]:
    path: KeyPath = tuple(part for part in error["loc"] if part != "[key]")
    what = _reason(error)
    if error["loc"] and error["loc"][-1] == "[key]":
        what = _NAME
    elif error["type"] == "model_type":
        what = "must be a mapping" if path else "the file must be a mapping with weft, ops, outputs"
    elif error["type"] == "extra_forbidden":
        model = next(
            (_MODELS[str(part)] for part in (path[-2:-1] or path[:0]) if part in _MODELS), None
        )
        model = model or next((_MODELS[str(part)] for part in path[-3:-2] if part in _MODELS), None)
        fields = (model or WorkflowSpec).model_fields
        names = [one.alias or name for name, one in fields.items()]
        what = f"unknown key{nearest(str(path[-1]), names)}"
    return path, what


def _reason(error: Any) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind in ("enum", "literal_error"):
        expected = context["expected"]
        known = expected.replace("'", "").replace(" or ", ", ").split(", ")
        return f"must be {expected}{yaml_errors.close(str(error['input']), known)}"
    if kind == "string_pattern_mismatch":
        pattern = context["pattern"]
        return _NAME if pattern == NAME_PATTERN else f"must match the pattern {pattern}"
    if kind == "missing":
        return "is missing; add it"
    if kind == "too_short":
        return f"needs at least {context['min_length']} entry"
    return yaml_errors.reason(error).replace("Input should be", "must be")


def _path(problem: Problem) -> KeyPath:
    """Return the path of the operator of a problem in the file."""
    path: list[str | int] = []
    for name in problem.operators:
        path += ["body" if path else "ops", name]
    if not path and problem.message.partition(".")[0] == "outputs":
        path = ["outputs"]
    return tuple(path)


def _word(root: yaml.Node | None, path: KeyPath, word: str, text: str) -> tuple[int, int]:
    """Return the place of a word in the part of the file at a path, in a placeholder if possible;
    without one, the place of the part.
    """
    node = yaml_errors.at(root, path)
    if node is not None and word:
        begin, end = node.start_mark.index, node.end_mark.index
        name = re.escape(word)
        for pattern in (rf"\{{[{{%][^}}]*?(?<![\w.])({name})\b", rf"(?<![\w.])({name})\b"):
            found = re.compile(pattern).search(text, begin, end)
            if found:
                before = text[: found.start(1)]
                return before.count("\n") + 1, found.start(1) - (before.rfind("\n") + 1) + 1
    return yaml_errors.mark(root, path)


def _within(root: yaml.Node | None, path: KeyPath, line: int) -> tuple[int, int]:
    """Return the place of a line of a template."""
    node = yaml_errors.at(root, path)
    if isinstance(node, yaml.ScalarNode):
        if node.style == "|":
            return node.start_mark.line + 1 + line, 1
        return node.start_mark.line + 1, node.start_mark.column + 1
    return yaml_errors.mark(root, path)


def _error(file: str, found: list[tuple[int, int, str]]) -> WorkflowError:
    lines = [f"{file}:{line}:{column}: {what}" for line, column, what in sorted(found)]
    return WorkflowError("\n".join(dict.fromkeys(lines)))


def schema() -> dict[str, Any]:
    """Return the JSON schema of the format."""
    return WorkflowSpec.model_json_schema()
