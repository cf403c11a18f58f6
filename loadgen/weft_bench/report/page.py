"""Output of studies: terminal, page, JSON and plots."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from weft_bench.report import plots
from weft_bench.report.figures import origin
from weft_bench.report.rows import markdown as table
from weft_bench.report.rows import print_table
from weft_bench.studies.cells import Measured
from weft_bench.studies.experiment import Experiment, Plot
from weft_bench.studies.store import ROOT

# Markers differ by shape, so that lines are distinct without color.
_MARKS: Final = "osD^vPX*"
# Labels of the outcomes, in display order.
_AGAIN: Final = "without program ends"
_WORDS: Final = {"won": "better", "lost": "worse", "open": "no difference shown"}
_HEAD: Final = """# Results

[Experiments](experiments.md) explains the systems, the terms and how to read each experiment.
`weft bench all` measures all experiments and writes this page. `weft bench list` lists them, and
`weft bench run NAME` measures one again.

- `1.23 ± 0.04` is a mean over seeds with half of its 95% confidence interval. If that interval
  would reach below zero, `122 [46 to 220]` shows the mean, the lowest and the highest seed.
- A ratio such as `1.16 (0.92 to 1.46)` is the geometric mean over pairs of the same seed, with its
  95% interval. Both sides played the same programs at the same times.
- `≥` and `≤` mark a bound: a system did not reach the compared latency under any measured load.
- `weft` is an engine with the order `warm_plas`, tags and swap, which was the default when these
  experiments were measured. It [was removed](decisions/0008-one-order-for-the-cache.md) since then.
  "Orders over load and cache size" has the present default, `resident`.
  "Without program ends" means that clients do not report when their programs end.
- FTR ("first token rendered") is the time from an agent's request to the first token of its final
  answer. E2E is the time to the end of that answer.

Simulated figures are marked as simulated and never share a table with figures of a real engine;
[simulator](simulator.md#fidelity) describes their accuracy. No GPU was measured.
"""


def views(experiment: Experiment, measured: Measured) -> dict[str, Any]:
    """Return the headline, tables and findings derived from the cells."""
    return {
        "headline": asdict(experiment.headline(measured)),
        "tables": [asdict(one) for one in experiment.tables(measured)],
        "findings": list(experiment.notes),
    }


def document(experiment: Experiment, measured: Measured, command: str) -> dict[str, Any]:
    """Return a run as JSON: the measured cells and everything derived from them."""
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "published": experiment.published,
        "kind": experiment.kind,
        **origin(command, ROOT),
        **views(experiment, measured),
        "cells": measured.to_json(),
    }


def show(found: Mapping[str, Any]) -> None:
    """Print the tables of a document, then the notes and the published result."""
    for one in found["tables"]:
        print_table(f"{found['kind']}: {one['title']}", one["columns"], one["rows"], one["labels"])
    for note in found["findings"]:
        print(f"- {note}")
    if found["published"]:
        print(f"published ({found['source']}): {found['published']}")


def markdown(found: Mapping[str, Any], image: str = "") -> str:
    """Return a section of a page for a document. image: path of a plot relative to the page."""
    measured = f", commit {found['commit']}" if found.get("commit") else ""
    parts = [
        f"## {found['title']}",
        f"`{found['command']}`, {found['kind']}, {found['date'][:10]}{measured}, "
        f"{found['machine']}.",
        f"Source: {found['source']}.",
    ]
    if found["published"]:
        parts.append(f"Published: {found['published']}.")
    for one in found["tables"]:
        parts.append(f"{found['kind'].capitalize()}: {one['title']}.")
        parts.append(table(one["columns"], one["rows"], one["labels"]))
    if found["findings"]:
        parts.append("\n".join(f"- {note}" for note in found["findings"]))
    if image:
        parts.append(f"![{found['title']}]({image})")
    return "\n\n".join(parts) + "\n"


def page(
    sections: Sequence[str],
    others: Sequence[Mapping[str, Any]],
    missing: Sequence[str] = (),
    documents: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the whole page.

    others: documents that other commands wrote with `write_json`, each with a `file`. missing:
    studies without figures. documents: those of the studies, for the summary.
    """
    parts = [_HEAD, *summary(documents), *sections]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        parts.append(f"## Open\n\nNot measured yet: {names}.\n")
    if others:
        rows = [
            (f"`{one['command']}`", f"`{one['file']}`", one["date"][:10], one["machine"])
            for one in others
        ]
        columns = ("command", "figures", "date", "machine")
        parts.append(f"## Measured by other commands\n\n{table(columns, rows, 4)}\n")
    return "\n".join(parts)


def summary(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the summary in Markdown: counts of won and lost comparisons, and each headline.

    documents: from `document`. Empty without scores.
    """
    told = [one for one in documents if _scores(one)]
    if not told:
        return []
    rivals = [one for one in told if one["headline"]["rival"]]
    # A system that is also played without program ends counts once.
    scores = (score for one in rivals for score in _scores(one))
    outcomes = Counter(s["outcome"] for s in scores if not s["name"].endswith(_AGAIN))
    counts = ", ".join(f"{outcomes[name]} {word}" for name, word in _WORDS.items())
    return [
        "## Summary\n",
        f"Weft and its rivals in {outcomes.total()} comparisons: {counts}.",
        "A comparison is better or worse if its whole 95% interval lies on one side of equality.",
        "Published figures are those of the papers, with other engines and programs.\n",
        *map(_line, told),
        "",
    ]


def _scores(document: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Return the scores that have a figure."""
    scores = document.get("headline", {}).get("scores", ())
    return [score for score in scores if score["shown"] != "-"]


def _line(document: Mapping[str, Any]) -> str:
    headline = document["headline"]
    groups = [f"published: {headline['published']}"] if headline["published"] else []
    for outcome, word in _WORDS.items():
        found = [s for s in _scores(document) if s["outcome"] == outcome]
        if found:
            shown = "; ".join(f"{score['name']} {score['shown']}" for score in found)
            groups.append(f"**{word}:** {shown}")
    # GitHub's anchor of the heading.
    anchor = re.sub(r"[^\w\- ]", "", document["title"].lower()).replace(" ", "-")
    title = f"[{document['title']}](#{anchor})"
    return f"- {title}, {document['kind']}: {headline['what']}.\n  - " + "\n  - ".join(groups)


def write(path: Path, found: Mapping[str, Any]) -> None:
    """Write a document, and create its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def draw(path: Path, drawn: Sequence[Plot], title: str) -> None:
    """Write the plots into one file, one below the other. Raises ImportError without matplotlib."""
    columns = max(len(plot.panels) for plot in drawn)
    picture, axes = plots.figure(len(drawn), columns, (4.2 * columns, 3.4 * len(drawn)))
    for row, plot in zip(axes, drawn, strict=True):
        for axis in row[len(plot.panels) :]:
            axis.axis("off")
        for axis, (name, lines) in zip(row, plot.panels, strict=False):
            for mark, line in zip(_MARKS * len(lines), lines, strict=False):
                middles = [one.middle for one in line.y]
                # matplotlib expects the distances of the ends from the middle.
                ends = [
                    [one.middle - one.ends()[0] for one in line.y],
                    [one.ends()[1] - one.middle for one in line.y],
                ]
                axis.errorbar(line.x, middles, ends, label=line.label, marker=mark, capsize=2)
            axis.set(title=name, xlabel=plot.x, ylabel=plot.y)
            if plot.log_y:
                axis.set_yscale("log")
        row[0].legend(fontsize="small")
    plots.save(picture, path, title)


def conclude(
    command: str,
    title: str,
    kind: str,
    tables: Sequence[Mapping[str, Any]],
    cells: Sequence[Mapping[str, Any]],
    missed: Sequence[str],
    json_file: str,
) -> int:
    """Print the tables, write them with their cells, and list the missed goals.

    Returns the exit status: 1 if a goal is missed. tables: in the format of `page.markdown`, so
    that the results page shows the same ones.
    """
    document = {
        "title": title,
        "source": "a goal of this project",
        "published": "",
        "kind": kind,
        **origin(command, ROOT),
        "tables": list(tables),
        "findings": [f"missed: {one}" for one in missed] or ["all goals are met"],
        "cells": list(cells),
    }
    show(document)
    print(document["machine"])
    if json_file:
        write(Path(json_file), document)
    name = " ".join(command.split()[:3])
    for one in missed:
        print(f"{name}: missed: {one}", file=sys.stderr)
    return 1 if missed else 0
