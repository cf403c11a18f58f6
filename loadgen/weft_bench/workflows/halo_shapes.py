"""The workflows of Halo's evaluation with one model (section 4.1, Table 2).

The paper publishes no lengths. Those below are typical of its data sets: reviews of Amazon have
1,000 tokens, a problem of GSM8K 80, an article of BBC News 600, a question of MT-Bench 80. W3 and
W5 are W2 and W4 with two models that workers load in turn; replicas here keep one model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft_run.plan.prompts import Slot

from weft_bench.workflows.shapes import Builder
from weft_bench.workflows.tasks import Batch


def retrieval(rows: int) -> Batch:
    """W1: one agent retrieves, one summarizes, one concludes."""
    build = Builder()
    found = build.call("retrieve", [build.static("retrieve"), build.column("reviews", 1000)], 150)
    text = build.call("summarize", [build.static("summarize"), build.answer(found)], 200)
    build.call("conclude", [build.static("conclude"), build.answer(text)], 150)
    return Batch("retrieval", tuple(build.calls), rows)


def critique(rows: int) -> Batch:
    """W2: an agent answers, one criticizes, one revises."""
    build = Builder()
    question = build.column("question", 80)
    first = build.call("first", [build.static("solve"), question], 200)
    critic = build.call("critic", [build.static("critic"), question, build.answer(first)], 150)
    said = [build.answer(first), build.answer(critic)]
    build.call("final", [build.static("revise"), question, *said], 200)
    return Batch("critique", tuple(build.calls), rows)


def vote(rows: int) -> Batch:
    """W4: three agents judge an article, one combines their judgments."""
    build = Builder()
    article = build.column("article", 600)
    views = [build.call(f"view{n}", [build.static(f"view{n}"), article], 150) for n in range(3)]
    build.call("verdict", [build.static("verdict"), *map(build.answer, views)], 100)
    return Batch("vote", tuple(build.calls), rows)


def dialogue(rows: int, turns: int = 4) -> Batch:
    """W6: an assistant answers turn after turn, with the dialogue so far."""
    build = Builder()
    said: list[Slot] = [build.static("assistant")]
    for turn in range(turns):
        said.append(build.column(f"turn{turn}", 80))
        said.append(build.answer(build.call(f"answer{turn}", said, 250)))
    return Batch("dialogue", tuple(build.calls), rows)


# By the paper's name: the workflow for a number of rows.
HALO: Final[dict[str, Callable[[int], Batch]]] = {
    "W1 retrieval": retrieval,
    "W2 critique": critique,
    "W4 vote": vote,
    "W6 dialogue": dialogue,
}
