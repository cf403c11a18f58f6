"""The text of an explanation: a tree from the outputs to the columns, like SQL's EXPLAIN."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Final

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from weft_run.language.graph import Branch, Loop, Operator
from weft_run.plan.commands import Usage
from weft_run.plan.explain import Explained, scaled
from weft_run.plan.rewrite import Rewrite

_THOUSAND: Final = 1000
# A file or pipe has no width; programs that read it expect whole lines.
PIPE_WIDTH: Final = 400


def text(found: Explained, width: int = PIPE_WIDTH, color: bool = False) -> str:
    """Return the explanation as text. width: in characters."""
    file = StringIO()
    console = Console(
        file=file, width=width, force_terminal=color, no_color=not color, highlight=False
    )
    console.print(_tree(found))
    console.print(
        f"{found.rows} rows, {_number(found.requests)} requests after rewriting and merging, "
        f"{_number(found.naive)} without; prompts {_tokens(scaled(found.counts.values()).usage)}"
    )
    _list(console, "Rewrites", [_saving(one, requests) for one, requests in found.savings])
    if found.merged:
        _list(console, "Merging", [f"{_number(found.merged)} requests equal an earlier one"])
    _list(console, "Hints", found.hints)
    _list(console, "Notes", found.notes)
    return file.getvalue()


def _tree(found: Explained) -> Tree:
    root = Tree(Text(found.workflow.name, "bold"))
    shown: set[str] = set()
    operators = found.workflow.by_name
    for column, name in found.workflow.outputs.items():
        _add(root.add(Text(f"output {column}")), operators[name], found, shown)
    for one in found.workflow.operators:
        if one.name not in shown:
            _add(root.add(Text("effect")), one, found, shown)
    return root


def _add(above: Tree, one: Operator, found: Explained, shown: set[str]) -> None:
    kind = type(one.body).__name__.lower()
    each = f" for each of {one.for_each}" if one.for_each else ""
    line = Text.assemble((one.name, "bold"), f"  {kind}{each}")
    if one.name in shown:
        above.add(line.append("  (see above)", "dim"))
        return
    shown.add(one.name)
    branch = above.add(line.append(_figures(one.name, found)))
    operators = found.workflow.by_name
    if isinstance(one.body, Loop):
        inside = branch.add(Text(f"body, at most {one.body.max} rounds"))
        for inner in reversed(one.body.body):
            inner_kind = type(inner.body).__name__.lower()
            named = Text.assemble((inner.name, "bold"), f"  {inner_kind}")
            inside.add(named.append(_figures(f"{one.name}.{inner.name}", found)))
    elif isinstance(one.body, Branch):
        cases = ", ".join(type(case.body).__name__.lower() for case in one.body.cases)
        line.append(f"  cases: {cases}")
    columns = [name for name in one.inputs if name in found.workflow.inputs]
    if columns:
        branch.add(Text(f"columns {', '.join(columns)}", "dim"))
    for name in one.inputs:
        if name in operators:
            _add(branch, operators[name], found, shown)


def _figures(name: str, found: Explained) -> str:
    """Return the figures of an operator, with all its cases."""
    some = [one for path, one in found.counts.items() if path.partition("[")[0] == name]
    if not some:
        return ""
    one = scaled(some)
    merged = f" ({_number(one.merged)} merged)" if one.merged else ""
    parts = [f"  requests {_number(one.calls)}{merged}"]
    if one.usage.prompt:
        parts.append(f"prompt {_tokens(one.usage)}")
        parts.append(f"output {_number(one.usage.output)}")
    return "  ".join(parts)


def _tokens(usage: Usage) -> str:
    share = usage.cached / usage.prompt if usage.prompt else 0.0
    return f"{_number(usage.prompt)} tokens, {_number(usage.cached)} cached ({share:.0%})"


def _number(value: int) -> str:
    return str(value) if value < 100 * _THOUSAND else f"{value / _THOUSAND:.0f}k"


def _saving(one: Rewrite, requests: int) -> str:
    into = f" into {one.into}" if one.into else ""
    saves = f", saves {_number(requests)} requests" if requests else ""
    return f"{one.kind} {one.operator}{into}: {one.reason}{saves}"


def _list(console: Console, title: str, lines: Sequence[str]) -> None:
    if lines:
        console.print(Text(title, "bold"))
        for line in lines:
            console.print(Text(f"  {line}"))
