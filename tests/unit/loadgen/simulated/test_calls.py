"""The list of answers that a simulated replica keeps."""

from __future__ import annotations

from weft_bench.simulated import calls
from weft_bench.simulated.calls import AnsweredCalls
from weft_engine.wire import CallReport

REPORT = CallReport(
    call="x", service_s=0.5, waiting_s=0.25, prompt_tokens=64, cached_tokens=48, output_tokens=3
)


def test_answers_are_listed_in_order_with_the_reports_figures():
    kept = AnsweredCalls()
    kept.add("a", REPORT)
    kept.add("b", REPORT)
    first, second = kept.told()
    assert (first["id"], second["id"]) == ("a", "b")
    assert first == {
        "id": "a", "prompt_tokens": 64, "cached_tokens": 48, "output_tokens": 3,
        "waiting_s": 0.25, "service_s": 0.5,
    }  # fmt: skip
    kept.clear()
    assert kept.told() == []


def test_only_the_newest_are_kept():
    kept = AnsweredCalls()
    for number in range(calls._KEPT + 2):
        kept.add(str(number), REPORT)
    assert kept.told()[0]["id"] == "2"
