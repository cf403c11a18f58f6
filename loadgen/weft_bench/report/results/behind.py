"""The pages behind the results page: experiments, other proxies, other benches and sources."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from weft_bench.report import page
from weft_bench.report import peers as front_report
from weft_bench.report.results import sections
from weft_bench.report.results.material import Document, Material, Result, seeds_as_text
from weft_bench.report.rows import markdown as table

IMAGES: Final = "images/results"
_CORRECTED: Final = (
    "[After Holm's correction](../results.md#how-to-read) for all comparisons of the results page"
)


def picture(drawn: Mapping[str, str], name: str, up: str = "") -> str:
    """Return the Markdown of a picture; empty if it is not drawn.

    drawn: titles of pictures by name. up: path to the docs folder.
    """
    return f"![{drawn[name]}]({up}{IMAGES}/{name}.svg)" if name in drawn else ""


def pages(material: Material, drawn: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page behind the results page."""
    for name, result in material.results.items():
        yield name, _experiment(material, drawn, name, result)
    for kind, files in material.peers.items():
        yield f"peers-{kind}", _peers(material, drawn, kind, files)
    for name, document in material.tables.items():
        yield name, _moved(page.markdown(document, level=1))
    yield "sources", _sources(material)


def _experiment(material: Material, drawn: Mapping[str, str], name: str, result: Result) -> str:
    document = {**result.document, **page.views(result.experiment, result.measured)}
    images = [one for one in drawn if one == name or one.startswith(f"{name}-")]
    # agentix-1 must not show the pictures of agentix-12.
    known = set(material.results) - {name}
    pictures = [picture(drawn, one, "../") for one in images if one not in known]
    text = [page.markdown(document, level=1)]
    if result.order:
        text.append(
            f"Weft's engines ran the order `{result.order}`. Seeds: {seeds_as_text(result.seeds)}."
        )
    shown = sections.verdicts(material.of(name))
    if shown:
        text.append(f"## Comparisons\n\n{_CORRECTED}: {result.headline.what}.\n\n{shown}")
    return _moved("\n\n".join(part.strip() for part in [*text, *pictures]))


def _peers(
    material: Material,
    drawn: Mapping[str, str],
    kind: str,
    files: Sequence[tuple[str, Document]],
) -> str:
    parts = [
        f"# Comparison with other proxies, {kind} replicas",
        "[Systems, workload and metrics](../peers.md).",
    ]
    for group in (one for one in material.groups if one.kind == kind):
        parts.append(f"## {group.name}, {group.engines}")
        for one in front_report.tables(group.turns, group.ours):
            parts.append(f"{kind.capitalize()}: {one['title']}.")
            parts.append(table(one["columns"], one["rows"], one["labels"]))
    shown = sections.verdicts(material.of(f"peers-{kind}"))
    if shown:
        parts.append(f"## Over the best peer of each seed\n\n{_CORRECTED}:\n\n{shown}")
    parts.append("## Findings\n\nThese intervals are not corrected for the number of comparisons.")
    for name, document in files:
        parts.append(f"`results/{name}.json`, {document['date'][:10]}, {document['machine']}:")
        parts.append(_moved("\n".join(f"- {finding}" for finding in document["findings"])))
        parts.append(picture(drawn, name, "../"))
    return "\n\n".join(part.strip() for part in parts if part)


def _moved(text: str) -> str:
    """Return text of a page of `docs` for a page of `docs/results`."""
    return re.sub(r"\]\((?!https?:|#|\.\./)", "](../", text)


def _sources(material: Material) -> str:
    found = {
        f"results/experiments/{name}.json": (one.document, seeds_as_text(one.seeds))
        for name, one in material.results.items()
    }
    for name, document in material.others.items():
        seeds = sorted({turn["seed"] for turn in document.get("turns", ())})
        found[f"results/{name}.json"] = (document, seeds_as_text(seeds))
    rows = [
        (
            f"`{file}`", f"`{one['command']}`", seeds, one["date"][:10], one.get("commit") or "-",
            one["machine"],
        )
        for file, (one, seeds) in found.items()
    ]  # fmt: skip
    columns = ("file", "command", "seeds", "date", "commit", "machine")
    return f"# Sources of all figures\n\n{table(columns, rows, len(columns))}"
