"""The text of an explanation: a tree from the outputs to the columns, like SQL's EXPLAIN."""

from __future__ import annotations

from io import StringIO
from typing import Final

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from weft_run.language.graph import Branch, Loop, Operator
from weft_run.language.trial import Figures
from weft_run.plan.explain import Explained

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
    total = _sum(found)
    console.print(
        f"{found.rows} rows, {_number(found.requests)} requests after rewriting and merging, "
        f"{_number(found.naive)} without; prompts {_tokens(total)}"
    )
    _list(console, "Rewrites", [_saving(found, number) for number in range(len(found.savings))])
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
            inside.add(named.append(_figures(inner.name, found)))
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
    tally = found.tallies.get(name)
    if tally is None:
        return ""
    merged = f" ({_number(tally.merged)} merged)" if tally.merged else ""
    parts = [f"  requests {_number(tally.requests)}{merged}"]
    if tally.prompt:
        parts.append(f"prompt {_tokens(tally)}")
        parts.append(f"output {_number(tally.output)}")
    return "  ".join(parts)


def _tokens(tally: Figures) -> str:
    share = tally.cached / tally.prompt if tally.prompt else 0.0
    return f"{_number(tally.prompt)} tokens, {_number(tally.cached)} cached ({share:.0%})"


def _number(value: int) -> str:
    return str(value) if value < 100 * _THOUSAND else f"{value / _THOUSAND:.0f}k"


def _sum(found: Explained) -> Figures:
    tallies = found.tallies.values()
    return Figures(
        prompt=sum(one.prompt for one in tallies), cached=sum(one.cached for one in tallies)
    )


def _saving(found: Explained, number: int) -> str:
    saving = found.savings[number]
    one = saving.rewrite
    into = f" into {one.into}" if one.into else ""
    saves = f", saves {_number(saving.requests)} requests" if saving.requests else ""
    return f"{one.kind} {one.operator}{into}: {one.reason}{saves}"


def _list(console: Console, title: str, lines: tuple[str, ...] | list[str]) -> None:
    if lines:
        console.print(Text(title, "bold"))
        for line in lines:
            console.print(Text(f"  {line}"))
