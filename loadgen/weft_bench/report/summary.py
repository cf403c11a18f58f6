"""What all experiments come to, for whoever reads only the top of the page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

# How outcomes are called, in the order in which they are told.
_WORDS: Final = {"won": "better", "lost": "worse", "open": "no difference shown"}


def summary(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of Markdown: how many comparisons ours has won and lost, and each experiment's headline
    in a row of a table; nothing without one. documents: as `experiments.document` makes them."""
    told = [one for one in documents if _scores(one)]
    if not told:
        return []
    rivals = [one for one in told if one["headline"]["rival"]]
    outcomes = Counter(score["outcome"] for one in rivals for score in _scores(one))
    counts = ", ".join(f"{outcomes[name]} {word}" for name, word in _WORDS.items())
    lines = [
        "## In short",
        "",
        f"Ours beside rivals in {outcomes.total()} comparisons: {counts}. Better and worse is what",
        "all of a 95% interval says. Published figures are of other engines and other programs.",
        "",
        "| experiment | what | ours | published |",
        "| --- | --- | --- | --- |",
    ]
    lines += [_row(one) for one in told]
    return [*lines, ""]


def _scores(document: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Those that have a figure."""
    scores = document.get("headline", {}).get("scores", ())
    return [score for score in scores if score["shown"] != "-"]


def _row(document: Mapping[str, Any]) -> str:
    headline = document["headline"]
    groups = []
    for outcome, word in _WORDS.items():
        found = [s for s in _scores(document) if s["outcome"] == outcome]
        if found:
            shown = "; ".join(f"{score['name']} {score['shown']}" for score in found)
            groups.append(f"**{word}:** {shown}")
    title = f"[{document['title']}](#{_anchor(document['title'])})"
    what = f"{document['kind']}: {headline['what']}"
    return f"| {title} | {what} | {'<br>'.join(groups)} | {headline['published'] or '-'} |"


def _anchor(title: str) -> str:
    """As GitHub names a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
