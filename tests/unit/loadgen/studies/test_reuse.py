"""Attribution of cached prefixes to programs and prefills."""

from __future__ import annotations

import pytest
from weft_bench.studies.reuse import common, depth_figures
from weft_bench.virtual.records import CallRecord, PrefillRecord, Simulation
from weft_bench.workloads.cutting import fit
from weft_bench.workloads.schema import Part, TraceCall, TraceProgram

_HEAD = Part("head", 100, "system")
_ASKED = Part("asked", 50, "user")
_ANSWER = Part("answer", 30, "assistant")
_FOUND = Part("found", 20, "tool")


def test_common_tokens_are_those_of_the_shared_prefix() -> None:
    assert common((_HEAD, _ASKED), (_HEAD, _FOUND)) == 100
    assert common((_HEAD, _ASKED), (Part("head", 60), _ASKED)) == 60
    assert common((_ASKED,), (_HEAD, _ASKED)) == common((), (_HEAD,)) == 0


def _found(cached: tuple[int, int], prefills: list[PrefillRecord]) -> dict[str, float]:
    calls = (
        TraceCall(parts=(_HEAD, _ASKED), output_tokens=30, answer="answer"),
        TraceCall(parts=(_HEAD, _ASKED, _ANSWER, _FOUND), output_tokens=5),
    )
    program = fit(TraceProgram("p", calls), 10_000, 4.0)
    assert program is not None
    records = [
        CallRecord("p", number, "r", 0.0, prompt, cached_tokens=hits)
        for number, (prompt, hits) in enumerate(zip((150, 200), cached, strict=True))
    ]
    return dict(depth_figures([program], Simulation(records, [], 1.0, prefills=prefills)))


def test_first_turn_hits_only_tokens_of_other_programs() -> None:
    found = _found((100, 0), [])
    assert (found["others_0"], found["own_0"]) == (pytest.approx(100 / 150), 0.0)
    assert found["hit_rate"] == pytest.approx(100 / 350)
    assert "hit_rate_2" not in found


def test_later_turn_hits_its_programs_prompts_and_answers() -> None:
    found = _found((0, 180), [])
    assert (found["own_1"], found["others_1"], found["ahead_1"]) == (0.9, 0.0, 0.0)


def test_prefilled_tokens_are_separate_from_cached_ones() -> None:
    ahead = PrefillRecord("p", 1, "r", 0.0, 180, cached_tokens=112, computed_tokens=68)
    found = _found((0, 176), [ahead])
    assert found["own_1"] == pytest.approx(112 / 200)
    assert found["ahead_1"] == pytest.approx(64 / 200)
    assert found["hit_rate_1"] == pytest.approx(176 / 200)
