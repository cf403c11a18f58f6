"""Writes the results page, the pages behind it and their pictures."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from weft_bench.report import drawing, page
from weft_bench.report import peers as front_report
from weft_bench.report.results import claims, forest, fronts, losses, sections
from weft_bench.report.results.comparisons import BETTER, BOUND, OPEN, WORSE, Comparison
from weft_bench.report.results.material import (
    Document,
    Material,
    Result,
    anchor,
    read,
    seeds_as_text,
)
from weft_bench.report.rows import markdown as table
from weft_bench.studies.experiment import Experiment

_IMAGES: Final = "images/results"
_GENERATED: Final = "<!-- `weft bench page` generates this page. -->\n"
_CORRECTED: Final = (
    "[After Holm's correction](../results.md#how-to-read) for all comparisons of the results page"
)


@dataclass(frozen=True, slots=True)
class Site:
    """Writes into a docs folder. drawn: names of pictures that exist, without folder."""

    docs: Path
    material: Material
    drawn: dict[str, str]

    def picture(self, name: str, up: str = "") -> str:
        """Return the Markdown of a picture; empty if it is not drawn. up: path to the docs."""
        title = self.drawn.get(name)
        return f"![{title}]({up}{_IMAGES}/{name}.svg)" if title else ""


def write_site(
    docs: Path,
    results: Path,
    experiments: Mapping[str, Experiment],
    known_peers: Sequence[str],
) -> list[Path]:
    """Write all pages and pictures from the measured figures. Returns the written pages.

    Removes generated pages and pictures of figures that no longer exist. Without matplotlib,
    existing pictures are kept.
    """
    site = Site(docs, read(results, experiments), {})
    folder = docs / _IMAGES
    try:
        _draw(site)
        _remove(folder.glob("*.svg"), site.drawn)
    except ImportError:
        site.drawn.update({file.stem: file.stem for file in folder.glob("*.svg")})
    pages = dict(_pages(site))
    behind = docs / "results"
    behind.mkdir(parents=True, exist_ok=True)
    _remove(behind.glob("*.md"), pages)
    written = [docs / "results.md"]
    written[0].write_text(_front(site, known_peers))
    for name, text in pages.items():
        written.append(behind / f"{name}.md")
        written[-1].write_text(f"{_GENERATED}\n{text.strip()}\n")
    return written


def _remove(files: Iterable[Path], kept: Container[str]) -> None:
    for file in files:
        if file.stem not in kept:
            file.unlink()


def draw_experiment(
    folder: Path, result_name: str, experiment: Experiment, found: Any
) -> list[str]:
    """Draw the plots of an experiment. Returns the names of the files, without suffix.

    Raises ImportError without matplotlib.
    """
    names = []
    for end, drawn in drawing.files(list(experiment.plots(found))):
        names.append(f"{result_name}{end}")
        title = f"{experiment.kind}: {experiment.title}"
        drawing.draw(folder / f"{names[-1]}.svg", drawn, title)
    return names


def _draw(site: Site) -> None:
    folder = site.docs / _IMAGES
    for name, result in site.material.results.items():
        for drawn in draw_experiment(folder, name, result.experiment, result.measured):
            site.drawn[drawn] = result.experiment.title
    for kind, files in site.material.peers.items():
        for name, document in files:
            title = f"{kind} engines, {document['date'][:10]}"
            turns = [fronts.turn_of(turn) for turn in document["turns"]]
            front_report.draw(folder / f"{name}.svg", turns, title)
            site.drawn[name] = title
    loads = fronts.load_plots([one for one in site.material.groups if one.kind == "emulated"])
    if loads:
        title = "emulated: completion of recorded programs over load"
        drawing.draw(folder / "peers-load.svg", loads, title)
        site.drawn["peers-load"] = title
    if forest.draw(folder / "forest.svg", site.material):
        site.drawn["forest"] = "ratios on fresh seeds with their 95% intervals"


def _front(site: Site, known_peers: Sequence[str]) -> str:
    """Return the results page."""
    material = site.material
    orders = sorted({one.ours for one in material.groups if one.kind == "emulated"})
    values = {
        "short": sections.short(material),
        "kinds": sections.kinds(material),
        "ours": ", ".join(f"`{name}`" for name in orders) or "Weft",
        "headline": sections.headline(material),
        "map": site.picture("memory-map") or "Not measured yet.",
        "map_order": material.results["memory"].order if "memory" in material.results else "",
        "load": "\n\n".join(
            one for one in (site.picture("peers-load"), site.picture("memory-load")) if one
        )
        or "Not measured yet.",
        "forest": site.picture("forest") or "Not measured yet.",
        "losses": losses.section(material),
        "claims": claims.section(material),
        "agreement": sections.agreement(material),
        "unknown": sections.unknown(material, known_peers),
        "index": _index(material),
        "correction": sections.correction(material),
    }
    template = (Path(__file__).parent / "results.md.in").read_text()
    return _compact(template.format(**values))


def _compact(text: str) -> str:
    """Return Markdown whose tables have no padding, to keep the page small."""
    lines = []
    for line in text.splitlines():
        if line.startswith("|"):
            line = re.sub(r"(?<=\|) {2,}| {2,}(?=\|)", " ", re.sub(r"-{4,}", "---", line))
        lines.append(line)
    return "\n".join(lines) + "\n"


def _index(material: Material) -> str:
    rows = []
    for name, result in material.results.items():
        document = result.document
        rest = (
            result.experiment.kind,
            result.order,
            seeds_as_text(result.seeds),
            document["date"][:10],
        )
        title = result.experiment.title
        found = [one for one in material.of(name) if not one.claim]
        rows.append(sections.index_row(title, name, [anchor(title)], (*rest, *_tally(found))))
    for kind, files in material.peers.items():
        name = f"peers-{kind}"
        date = max(document["date"][:10] for _, document in files)
        groups = [one for one in material.groups if one.kind == kind]
        orders = ", ".join(sorted({one.ours.partition("/")[2] for one in groups}))
        seeds = seeds_as_text(sorted({seed for one in groups for seed in one.seeds}))
        title = f"Comparison with other proxies, {kind} replicas"
        about = (kind, orders, seeds, date, *_tally(material.of(name)))
        rows.append(sections.index_row(title, name, [anchor(title)], about))
    for name, document in material.tables.items():
        about = (document["kind"], "", "", document["date"][:10], "", "", "", "")
        rows.append(sections.index_row(document["title"], name, [anchor(document["title"])], about))
    columns = (
        "tables", "kind", "Weft's order", "seeds", "date", BETTER, WORSE, "no difference", "bounds",
    )  # fmt: skip
    return table(columns, rows, 5)


def _tally(found: Sequence[Comparison]) -> list[str]:
    """Return the number of comparisons by verdict."""
    return [
        str(sum(one.verdict == verdict and one.known and one.counts for one in found))
        for verdict in (BETTER, WORSE, OPEN, BOUND)
    ]


def _pages(site: Site) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page behind the results page."""
    material = site.material
    for name, result in material.results.items():
        yield name, _experiment(site, name, result)
    for kind, files in material.peers.items():
        yield f"peers-{kind}", _peers(site, kind, files)
    for name, document in material.tables.items():
        yield name, _moved(page.markdown(document, level=1))
    yield "sources", _sources(material)


def _experiment(site: Site, name: str, result: Result) -> str:
    document = {**result.document, **page.views(result.experiment, result.measured)}
    images = [one for one in site.drawn if one == name or one.startswith(f"{name}-")]
    # agentix-1 must not show the pictures of agentix-12.
    known = set(site.material.results) - {name}
    pictures = [site.picture(one, "../") for one in images if one not in known]
    text = [page.markdown(document, level=1)]
    if result.order:
        text.append(
            f"Weft's engines ran the order `{result.order}`. Seeds: {seeds_as_text(result.seeds)}."
        )
    shown = sections.verdicts(site.material.of(name))
    if shown:
        text.append(f"## Comparisons\n\n{_CORRECTED}: {result.headline.what}.\n\n{shown}")
    return _moved("\n\n".join(part.strip() for part in [*text, *pictures]))


def _peers(site: Site, kind: str, files: Sequence[tuple[str, Document]]) -> str:
    parts = [
        f"# Comparison with other proxies, {kind} replicas",
        "[Systems, workload and metrics](../peers.md).",
    ]
    for group in (one for one in site.material.groups if one.kind == kind):
        parts.append(f"## {group.name}, {group.engines}")
        for one in front_report.tables(group.turns, group.ours):
            parts.append(f"{kind.capitalize()}: {one['title']}.")
            parts.append(table(one["columns"], one["rows"], one["labels"]))
    shown = sections.verdicts(site.material.of(f"peers-{kind}"))
    if shown:
        parts.append(f"## Over the best peer of each seed\n\n{_CORRECTED}:\n\n{shown}")
    parts.append("## Findings\n\nThese intervals are not corrected for the number of comparisons.")
    for name, document in files:
        parts.append(f"`results/{name}.json`, {document['date'][:10]}, {document['machine']}:")
        parts.append(_moved("\n".join(f"- {finding}" for finding in document["findings"])))
        parts.append(site.picture(name, "../"))
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
