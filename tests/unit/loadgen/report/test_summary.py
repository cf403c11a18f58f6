"""The summary of the results page."""

from __future__ import annotations

from typing import Any

from weft_bench.report.page import summary


def _document(
    title: str, *scores: tuple[str, str, str], published: str = "", rival: bool = True
) -> dict[str, Any]:
    return {
        "title": title,
        "kind": "simulated",
        "headline": {
            "what": "latency over fcfs's; less is better",
            "scores": [{"name": n, "shown": s, "outcome": o} for n, s, o in scores],
            "published": published,
            "rival": rival,
        },
    }


def test_wins_and_losses_are_counted_with_one_line_each() -> None:
    lines = summary(
        [
            _document("Why, and when", ("bfcl", "0.27 (0.21 to 0.35)", "won"), published="0.5"),
            _document(
                "Edges", ("a", "1.96 (1.9 to 2.0)", "lost"), ("b", "1.1 (0.9 to 1.3)", "open")
            ),
        ]
    )
    text = "\n".join(lines)
    assert "in 3 comparisons: 1 better, 1 worse, 1 no difference shown" in text
    assert (
        "- [Why, and when](#why-and-when), simulated: latency over fcfs's; less is better.\n"
        "  - published: 0.5\n  - **better:** bfcl 0.27 (0.21 to 0.35)"
    ) in lines
    (edges,) = [line for line in lines if "[Edges](#edges)" in line]
    assert edges.endswith(
        "\n  - **worse:** a 1.96 (1.9 to 2.0)\n  - **no difference shown:** b 1.1 (0.9 to 1.3)"
    )


def test_clairvoyant_order_is_no_rival() -> None:
    text = "\n".join(
        summary([_document("Limit", ("bfcl", "1.2 (1.1 to 1.3)", "lost"), rival=False)])
    )
    assert "in 0 comparisons" in text
    assert "**worse:** bfcl" in text


def test_unmeasured_scores_are_left_out() -> None:
    (row,) = summary([_document("A", ("x", "-", "open"), ("y", "0.5", "won"))])[-2:-1]
    assert row.endswith("**better:** y 0.5")


def test_documents_without_headlines_have_no_summary() -> None:
    assert summary([]) == []
    assert summary([_document("Nothing")]) == []
    assert summary([{"title": "of old"}]) == []


def test_a_system_played_again_without_program_ends_counts_once() -> None:
    scores = [(name, "0.5", "won") for name in ("bfcl", "bfcl, without program ends")]
    assert "in 1 comparisons: 1 better" in "\n".join(summary([_document("Why", *scores)]))
