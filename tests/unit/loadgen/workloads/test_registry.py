"""Compares every synthetic workload with its published statistics."""

from __future__ import annotations

from functools import cache

import pytest
from weft_bench.workloads.registry import WORKLOADS
from weft_bench.workloads.statistics import statistics

# Number of programs, large enough that the mean of the longest tail is within a few per cent.
SAMPLES = {"lats": 250, "mixed": 600, "production_wide": 500}
MOST = 1500
# Statistics with a larger (relative, absolute) tolerance than a mean.
LOOSE = {
    "calls max": (0.2, 0.0),
    "fan-out max": (0.25, 0.0),
    "tool variance": (0.2, 0.0),
    "tool mean": (0.1, 0.0),
    # All calls of a search belong together, so the mean of a few searches varies.
    "calls mean": (0.08, 0.0),
    "final over asking output": (0.1, 0.0),
    "tools' share p50": (0.0, 0.03),
    "tools' share p90": (0.0, 0.05),
    "tools' share p99": (0.0, 0.04),
    "prompt before tools p10": (0.0, 0.07),
    "prompt before tools p90": (0.0, 0.07),
    "prompt p50": (0.1, 0.0),
    # A variance of 1,500 draws, and tails whose shape is not published.
    "calls variance": (0.08, 0.0),
    "revise output p95": (0.1, 0.0),
    "query output p95": (0.25, 0.0),
}


@cache
def drawn(name):
    workload = WORKLOADS[name]
    programs = list(workload.generate(0, SAMPLES.get(name, MOST)))
    found = statistics(programs)
    if workload.extra is not None:
        found |= workload.extra(programs)
    return programs, found


@pytest.mark.parametrize(
    ("name", "statistic"),
    # test_synthetic.py checks the statistics of dialogues with texts.
    [(w.name, s) for w in WORKLOADS.values() for s in w.published if w.name != "dialogues"],
)
def test_statistics_are_as_published(name, statistic):
    _, found = drawn(name)
    relative, absolute = LOOSE.get(statistic, (0.05, 0.0))
    published = WORKLOADS[name].published[statistic]
    assert found[statistic] == pytest.approx(published, rel=relative, abs=absolute)


@pytest.mark.parametrize("statistic", ["calls", "output"])
@pytest.mark.parametrize("name", ["sharegpt", "bfcl", "lats", "web_search", "swe"])
def test_most_are_short_and_a_few_are_long(name, statistic):
    """As in Agentix, Figure 11: the median is well below the mean, and the maximum far above it."""
    _, found = drawn(name)
    mean = found[f"{statistic} mean"]
    assert found[f"{statistic} p50"] < 0.96 * mean
    assert found[f"{statistic} max"] > 2.5 * mean


@pytest.mark.parametrize("name", ["sharegpt", "bfcl"])
def test_no_program_is_longer_than_the_longest_published(name):
    programs, _ = drawn(name)
    assert max(len(p.calls) for p in programs) <= WORKLOADS[name].published["calls max"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_program_depends_only_on_seed_and_number(name):
    workload = WORKLOADS[name]
    assert list(workload.generate(3, 4)) == list(workload.generate(3, 9))[:4]
    assert list(workload.generate(3, 4)) != list(workload.generate(4, 4))
    ids = [program.id for program in workload.generate(3, 40)]
    assert len(set(ids)) == 40


def test_a_query_has_its_stages_in_order_and_at_most_ten_revisions():
    programs, _ = drawn("text2sql-3")
    order = [
        "retriever", "keywords", "candidate 0", "candidate 1", "revise", "unit tester",
        "unit test", "evaluate",
    ]  # fmt: skip
    counts = dict.fromkeys(order, 0)
    for program in programs:
        stages = [call.parts[0].name.removeprefix("text2sql/") for call in program.calls]
        firsts = [stages.index(name) for name in order if name in stages]
        firsts.remove(stages.index("retriever"))
        assert firsts == sorted(firsts)
        assert stages.count("revise") <= 10
        for name in order:
            counts[name] += stages.count(name)
    means = {name: count / len(programs) for name, count in counts.items()}
    expected = (4, 0.8, 1, 1, 5.0, 3, 0.96, 5.1)
    assert list(means.values()) == pytest.approx(expected, rel=0.05)
    assert any("revise" not in str(program.calls) for program in programs)


def test_candidates_and_evaluations_of_a_query_run_at_the_same_time():
    for program in drawn("text2sql-3")[0][:30]:
        stages = [call.parts[0].name.removeprefix("text2sql/") for call in program.calls]
        waits = [call.needs(number) for number, call in enumerate(program.calls)]
        first = stages.index("candidate 0")
        assert waits[first] == waits[first + 1]
        assert waits[first + 2] == (first, first + 1)
        judged = stages.index("evaluate")
        assert len(set(waits[judged:])) == 1
        assert waits[judged] == (judged - 1,)


@pytest.mark.parametrize(("name", "added"), [("text2sql-5", 0.25), ("text2sql-6", 0.5)])
def test_single_calls_are_a_quarter_or_half_of_the_calls_of_queries(name, added):
    programs, _ = drawn(name)
    singles = sum(len(program.calls) == 1 for program in programs)
    calls = sum(len(program.calls) for program in programs if len(program.calls) > 1)
    assert singles / calls == pytest.approx(added, rel=0.1)


@pytest.mark.parametrize("name", ["sharegpt", "bfcl", "web_search", "swe"])
def test_contexts_only_grow_and_answers_come_back_in_them(name):
    programs, _ = drawn(name)
    for program in programs[:50]:
        for before, after in zip(program.calls, program.calls[1:], strict=False):
            length = len(before.parts)
            assert after.parts[:length] == before.parts
            back = after.parts[length]
            assert (back.name, back.tokens) == (before.answer, before.output_tokens)


@pytest.mark.parametrize(
    "name", ["sharegpt", "bfcl", "lats", "production", "production_wide", "web_search", "swe"]
)
def test_programs_share_only_their_prompts_prefix(name):
    programs, _ = drawn(name)
    heads = {call.parts[0] for program in programs[:20] for call in program.calls}
    assert len(heads) == 1
    own = [
        {part.name for call in p.calls for part in call.parts if part.name.startswith(p.id)}
        for p in programs[:20]
    ]
    assert sum(len(names) for names in own) == len(set().union(*own))
    assert all(own)


def test_search_runs_five_samples_and_five_judgements_in_parallel():
    (program,) = WORKLOADS["lats"].generate(1, 1)
    levels = {}
    for number, call in enumerate(program.calls):
        levels[number] = 1 + max((levels[n] for n in call.needs(number)), default=-1)
    counts = [list(levels.values()).count(level) for level in range(max(levels.values()) + 1)]
    assert set(counts) == {5}
    # Samples of one node have one prompt. A judgement's prompt contains its sample's answer.
    assert len({call.parts for call in program.calls[:5]}) == 1
    for sample, judgement in zip(program.calls[:5], program.calls[5:10], strict=True):
        assert sample.answer in [part.name for part in judgement.parts]


def test_the_mixture_has_the_three_in_equal_parts():
    programs, _ = drawn("mixed")
    kinds = [program.id.partition("-")[0] for program in programs]
    for kind in ("sharegpt", "bfcl", "lats"):
        assert kinds.count(kind) / len(kinds) == pytest.approx(1 / 3, abs=0.05)


def test_instructions_of_the_production_trace_change_between_iterations():
    programs, found = drawn("production")
    changed = [
        before.parts[1] != after.parts[1]
        for program in programs
        for before, after in zip(program.calls, program.calls[1:], strict=False)
    ]
    assert sum(changed) / len(changed) > 0.5
    assert found["kept"] < 0.5 < drawn("web_search")[1]["kept"]
    assert all(not program.calls[-1].tool_s for program in programs), "the last asks for no tools"


def test_wide_requests_are_from_the_production_trace_and_call_more_tools():
    wide, found = drawn("production_wide")
    programs, all_found = drawn("production")
    assert wide[0] in programs[:10]
    assert found["fan-out mean"] > 1.2 * all_found["fan-out mean"]
    assert found["calls mean"] > all_found["calls mean"]


@pytest.mark.parametrize("name", ["production", "production_wide", "web_search", "swe"])
def test_a_gap_is_as_long_as_the_longest_of_its_tools(name):
    programs, _ = drawn(name)
    for program in programs[:100]:
        for call in program.calls:
            assert call.gap_s == max(call.tool_s, default=0.0)
