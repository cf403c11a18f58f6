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
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError

from weft_gateway import marks
from weft_gateway.marks import KeyPath, nearest
from weft_gateway.workflows.check import Problem, WorkflowError, problems
from weft_gateway.workflows.compile import Compiler
from weft_gateway.workflows.graph import Workflow
from weft_gateway.workflows.spec_models import (
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

MAX_BYTES: Final = 4 * 2**20
# Aliases repeat parts of a file: this many nodes, repetitions included, are read.
MAX_NODES: Final = 200_000
_MODELS: Final[dict[str, type[BaseModel]]] = {
    "llm": LlmSpec, "messages": MessageSpec, "sql": SqlSpec, "http": HttpSpec, "loop": LoopSpec,
    "python": PythonSpec, "branch": CaseSpec, "ops": OperatorSpec, "body": OperatorSpec,
}  # fmt: skip


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


def load(text: str, file: str = "workflow") -> Workflow:
    """Compile a workflow. file: its name, for messages. Raises WorkflowError, whose message has one
    line per error: file:line:column: path: reason.
    """
    root, raw = _read(text, file)
    found: list[tuple[int, int, str]] = []
    for path, what in marks.duplicates(root):
        found.append((*marks.mark(root, path), f"{marks.dotted(path)}{what}"))
    try:
        spec = WorkflowSpec.model_validate(raw)
    except ValidationError as error:
        for item in error.errors():
            path, what = _described(item)
            found.append((*marks.mark(root, path), f"{marks.dotted(path)}{what}"))
        raise _error(file, found) from None
    compiler = Compiler(file, lambda path: marks.mark(root, path)[0])
    workflow = compiler.workflow(spec)
    for path, what, line in compiler.errors:
        found.append((*_within(root, path, line), f"{marks.dotted(path)}{what}"))
    if not found:
        for problem in problems(workflow):
            path = _path(spec, problem)
            place = _word(root, path, problem.word, text)
            found.append((*place, f"{marks.dotted(path)}{problem.message}"))
    if found:
        raise _error(file, found)
    return workflow


def _read(text: str, file: str) -> tuple[yaml.Node | None, Any]:
    if len(text) > MAX_BYTES:
        raise WorkflowError(f"{file}: larger than {MAX_BYTES // 2**20} MiB")
    try:
        root = yaml.compose(text, Loader=_Loader)
        _count(root, [0], ())
        loader = _Loader("")
        return root, loader.construct_document(root) if root is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise WorkflowError(f"{file}{place}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise WorkflowError(f"{file}: not valid YAML: {error}") from None
    except RecursionError:
        raise WorkflowError(f"{file}: nested too deeply") from None


def _count(node: yaml.Node | None, seen: list[int], around: tuple[int, ...]) -> None:
    """Refuse aliases that contain themselves, and those that make a small file large."""
    seen[0] += 1
    if seen[0] > MAX_NODES:
        raise ValueError(f"more than {MAX_NODES} values")
    if id(node) in around:
        raise ValueError("an alias contains itself")
    inside = (*around, id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _count(key, seen, inside)
            _count(value, seen, inside)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _count(value, seen, inside)


def _described(error: Any) -> tuple[KeyPath, str]:
    path: KeyPath = tuple(part for part in error["loc"] if part != "[key]")
    what = error["msg"].removeprefix("Value error, ")
    if error["loc"] and error["loc"][-1] == "[key]":
        what = "a name has 1 to 64 letters, digits and underscores, and begins with no digit"
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


def _path(spec: WorkflowSpec, problem: Problem) -> KeyPath:
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
    node = marks.at(root, path)
    if node is not None and word:
        begin, end = node.start_mark.index, node.end_mark.index
        name = re.escape(word)
        for pattern in (rf"\{{[{{%][^}}]*?(?<![\w.])({name})\b", rf"(?<![\w.])({name})\b"):
            found = re.compile(pattern).search(text, begin, end)
            if found:
                before = text[: found.start(1)]
                return before.count("\n") + 1, found.start(1) - (before.rfind("\n") + 1) + 1
    return marks.mark(root, path)


def _within(root: yaml.Node | None, path: KeyPath, line: int) -> tuple[int, int]:
    """Return the place of a line of a template."""
    node = marks.at(root, path)
    if isinstance(node, yaml.ScalarNode):
        if node.style == "|":
            return node.start_mark.line + 1 + line, 1
        return node.start_mark.line + 1, node.start_mark.column + 1
    return marks.mark(root, path)


def _error(file: str, found: list[tuple[int, int, str]]) -> WorkflowError:
    lines = [f"{file}:{line}:{column}: {what}" for line, column, what in sorted(found)]
    return WorkflowError("\n".join(dict.fromkeys(lines)))


def schema() -> dict[str, Any]:
    """Return the JSON schema of the format."""
    return WorkflowSpec.model_json_schema()
