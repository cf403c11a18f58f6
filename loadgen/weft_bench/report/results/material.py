"""All measured figures that the results page shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft_bench.report.results import fronts
from weft_bench.report.results.comparisons import TUNING, Comparison, judged
from weft_bench.studies.cells import Measured
from weft_bench.studies.experiment import Experiment, Headline

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """One measured experiment. document: its file."""

    experiment: Experiment
    measured: Measured
    document: Document
    headline: Headline

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds of the programs."""
        first = self.experiment.first_seed
        return tuple(sorted({first + cell.seed for cell in self.measured.values}))

    @property
    def order(self) -> str:
        """Return the order of Weft's engines, which older files do not name."""
        return str(self.document.get("order", ""))


@dataclass(frozen=True, slots=True)
class Material:
    """Everything on the page. The comparisons of the groups come first, in their order.

    results: by name. missing: names of experiments without figures. others: documents of other
    commands by the name of their file. groups: plays of `weft bench peers`. comparisons: all of
    them, with verdicts.
    """

    results: Mapping[str, Result]
    missing: Sequence[str]
    others: Mapping[str, Document]
    groups: Sequence[fronts.Group]
    comparisons: Sequence[Comparison]

    def of(self, source: str) -> list[Comparison]:
        """Return the comparisons of one page."""
        return [one for one in self.comparisons if one.source == source]

    def of_groups(self, kind: str) -> list[tuple[fronts.Group, list[Comparison]]]:
        """Return the groups of one kind with their comparisons, one for each figure."""
        size = len(fronts.LABELS)
        return [
            (group, list(self.comparisons[size * place : size * (place + 1)]))
            for place, group in enumerate(self.groups)
            if group.kind == kind
        ]

    @property
    def peers(self) -> dict[str, list[tuple[str, Document]]]:
        """Return the files of `weft bench peers` by the kind of their engines."""
        found: dict[str, list[tuple[str, Document]]] = {}
        for name, document in self.others.items():
            if "turns" in document and not fronts.has_targets(document):
                found.setdefault(document["kind"], []).append((name, document))
        return found

    @property
    def tables(self) -> dict[str, Document]:
        """Return the documents with a page for each: those of other commands that have tables, and
        plays with targets of turns.
        """
        return {
            n: d
            for n, d in self.others.items()
            if "tables" in d and ("turns" not in d or fronts.has_targets(d))
        }


def read(folder: Path, experiments: Mapping[str, Experiment]) -> Material:
    """Return the figures in a results folder, with those of the experiments in `experiments`."""
    results, missing = {}, []
    for name, experiment in experiments.items():
        file = folder / "experiments" / f"{name}.json"
        if not file.is_file():
            missing.append(name)
            continue
        document = json.loads(file.read_text())
        measured = Measured.of_json(document["cells"])
        results[name] = Result(experiment, measured, document, experiment.headline(measured))
    others = {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}
    others = {name: document for name, document in others.items() if "command" in document}
    plays = {name: document for name, document in others.items() if "turns" in document}
    groups = fronts.groups([one for one in plays.values() if not fronts.has_targets(one)])
    targets = {name: one for name, one in plays.items() if fronts.has_targets(one)}
    found = [
        *fronts.comparisons(groups),
        *_comparisons(results.values()),
        *(one for name, document in targets.items() for one in fronts.of_turns(name, document)),
    ]
    return Material(results, missing, others, groups, judged(found))


def _comparisons(results: Sequence[Result] | Any) -> Iterator[Comparison]:
    for result in results:
        experiment, headline = result.experiment, result.headline
        common = (experiment.name, experiment.title, experiment.kind)
        for score in headline.scores:
            yield Comparison(*common, headline.what, score, result.seeds, headline.rival)
        for claim in experiment.claims(result.measured):
            yield Comparison(*common, "", claim.score, result.seeds, claim=True)


def seeds_as_text(seeds: Sequence[int]) -> str:
    """Return seeds such as "100 to 102", and whether they were open to tuning."""
    if not seeds:
        return "-"
    whole = len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1
    text = f"{seeds[0]} to {seeds[-1]}" if whole else ", ".join(map(str, seeds))
    return f"{text} (tuning)" if any(seed in TUNING for seed in seeds) else text


def anchor(title: str) -> str:
    """Return GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
