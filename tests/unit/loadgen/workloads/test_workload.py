"""Streams by purpose: a change of one property of a workload changes no other."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace
from weft_bench.cli.studies import WorkloadOptions
from weft_bench.workloads import agentix, sutradhara
from weft_bench.workloads import workload as module
from weft_bench.workloads.command import made
from weft_bench.workloads.draws import LongTail, TwoPhase
from weft_bench.workloads.registry import WORKLOADS
from weft_bench.workloads.schema import Part
from weft_bench.workloads.streams import stream
from weft_bench.workloads.workload import Dialogue, arriving, purposes


def programs(name="bfcl", count=6, **options):
    return list(made(WorkloadOptions(seed=5, **options), WORKLOADS[name], count))


def without(found, *fields):
    """Return the calls with some fields set to fixed values."""
    return [[replace(call, **dict(fields)) for call in program.calls] for program in found]


def test_another_rate_only_scales_the_arrivals():
    slow, fast = programs(rate=1.0), programs(rate=4.0)
    assert [p.calls for p in slow] == [p.calls for p in fast]
    assert [p.arrival_s for p in slow] == pytest.approx([4 * p.arrival_s for p in fast])


@pytest.mark.parametrize("kind", ["bursty", "stepped"])
def test_other_arrivals_do_not_change_calls(kind):
    steady, other = programs(), programs(arrivals=kind)
    assert [p.calls for p in steady] == [p.calls for p in other]
    assert [p.arrival_s for p in steady] != [p.arrival_s for p in other]


def test_more_programs_do_not_change_earlier_ones():
    assert programs(count=12)[:6] == programs(count=6)


def test_slower_tools_change_only_gaps(monkeypatch):
    before = programs()
    monkeypatch.setattr(agentix, "TOOL_S", TwoPhase(mean=9.0, variance=200.0, quick=2.0))
    after = programs()
    assert before != after
    blank = (("gap_s", 0.0), ("tool_s", ()))
    assert without(before, *blank) == without(after, *blank)


def test_longer_answers_do_not_change_gaps_or_questions():
    kind = sutradhara.WEB_SEARCH
    longer = dataclasses.replace(kind, answer=LongTail(400, 0.6, 10, 3000))
    before, after = ([one.program(5, number) for number in range(6)] for one in (kind, longer))
    assert before != after
    for one, other in zip(before, after, strict=True):
        assert [c.gap_s for c in one.calls] == [c.gap_s for c in other.calls]
        assert [c.tool_s for c in one.calls] == [c.tool_s for c in other.calls]
        asked = [[p for p in c.calls[-1].parts if p.kind != "assistant"] for c in (one, other)]
        assert asked[0] == asked[1]


@pytest.fixture
def salted(monkeypatch):
    """Return a function that draws programs with another stream for one purpose."""

    def draw(name, *purposes):
        def other(seed, purpose):
            return stream(seed + purpose.endswith(purposes), purpose)

        monkeypatch.setattr(module, "stream", other)
        return list(WORKLOADS[name].generate(5, 6))

    return draw


@pytest.mark.parametrize("name", ["bfcl", "lats", "web_search", "swe"])
def test_no_purpose_draws_from_the_stream_of_another(salted, name):
    as_is = salted(name, "/nothing")
    times = (("gap_s", 0.0), ("tool_s", ()))
    gaps = salted(name, "/gaps")
    assert gaps != as_is
    assert without(gaps, *times) == without(as_is, *times)
    answers = salted(name, "/answers", "/thoughts")
    assert answers != as_is
    for one, other in zip(answers, as_is, strict=True):
        assert [(c.gap_s, c.tool_s, c.after) for c in one.calls] == [
            (c.gap_s, c.tool_s, c.after) for c in other.calls
        ]
        asked = [
            [p for c in program.calls for p in c.parts if p.kind != "assistant"]
            for program in (one, other)
        ]
        assert asked[0] == asked[1]


@pytest.mark.parametrize(
    ("name", "purpose"), [("production", "/gaps"), ("production", "/share"), ("swe", "/gaps")]
)
def test_streams_of_times_change_only_times(salted, name, purpose):
    times = (("gap_s", 0.0), ("tool_s", ()))
    as_is, other = salted(name, "/nothing"), salted(name, purpose)
    assert as_is != other
    assert without(as_is, *times) == without(other, *times)


def test_purposes_are_independent_and_restart():
    draw = purposes(1, "w/0")
    assert draw("a").random() == draw("a").random()
    assert draw("a").random() != draw("b").random()
    assert draw("a").random() != purposes(1, "w/1")("a").random()


def test_dialogue_grows_by_messages_and_answers():
    talk = Dialogue("d", (Part("system", 9, "system"),))
    talk.say("user", 4)
    talk.call(7)
    talk.say("tool", 2, 3)
    talk.call(1, gap_s=0.5, tool_s=(0.5, 0.1))
    first, second = talk.program().calls
    assert [p.tokens for p in first.parts] == [9, 4]
    assert [(p.tokens, p.kind) for p in second.parts[2:]] == [
        (7, "assistant"),
        (2, "tool"),
        (3, "tool"),
    ]
    assert len({p.name for p in second.parts}) == 5
    assert (second.gap_s, second.tool_s) == (0.5, (0.5, 0.1))


def test_arrivals_must_match_the_number_of_programs():
    with pytest.raises(ValueError, match="shorter"):
        list(arriving(WORKLOADS["bfcl"].generate(0, 3), [1.0, 2.0]))
