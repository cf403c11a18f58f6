"""Writes the results page, the pages behind it and their pictures."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from weft_bench.report import drawing
from weft_bench.report import peers as front_report
from weft_bench.report.results import claims, forest, fronts, headline, losses, sections, trust
from weft_bench.report.results.behind import IMAGES, pages, picture
from weft_bench.report.results.comparisons import BETTER, BOUND, OPEN, WORSE, Comparison
from weft_bench.report.results.material import (
    Material,
    anchor,
    read,
    seeds_as_text,
)
from weft_bench.report.rows import markdown as table
from weft_bench.studies.experiment import Experiment

_LOADS: Final = ("peers-load", "memory-load")
_GENERATED: Final = "<!-- `weft bench page` generates this page. -->\n"


@dataclass(frozen=True, slots=True)
class Site:
    """Writes into a docs folder. drawn: names of pictures that exist, without folder."""

    docs: Path
    material: Material
    drawn: dict[str, str]


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
    folder = docs / IMAGES
    try:
        _draw(site)
        _remove(folder.glob("*.svg"), site.drawn)
    except ImportError:
        site.drawn.update({file.stem: file.stem for file in folder.glob("*.svg")})
    texts = dict(pages(site.material, site.drawn))
    behind = docs / "results"
    behind.mkdir(parents=True, exist_ok=True)
    _remove(behind.glob("*.md"), texts)
    written = [docs / "results.md"]
    written[0].write_text(_front(site, known_peers))
    for name, text in texts.items():
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
    folder = site.docs / IMAGES
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
        "kinds": trust.kinds(material),
        "ours": ", ".join(f"`{name}`" for name in orders) or "Weft",
        "headline": headline.section(material),
        "map": picture(site.drawn, "memory-map") or "Not measured yet.",
        "map_order": material.results["memory"].order if "memory" in material.results else "",
        "load": "\n\n".join(filter(None, (picture(site.drawn, name) for name in _LOADS)))
        or "Not measured yet.",
        "forest": picture(site.drawn, "forest") or "Not measured yet.",
        "losses": losses.section(material),
        "claims": claims.section(material),
        "agreement": trust.agreement(material),
        "unknown": trust.unknown(material, known_peers),
        "index": _index(material),
        "correction": sections.correction(material),
    }
    template = (Path(__file__).parent / "results.txt").read_text()
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
