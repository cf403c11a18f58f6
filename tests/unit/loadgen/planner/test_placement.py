"""Placement of whole operators on workers that load models."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft_bench.planner.placement import (
    PLACERS,
    Job,
    Node,
    Places,
    beam,
    data_parallel,
    dynamic,
    finish_s,
)


@st.composite
def _jobs(draw: st.DrawFn, most: int = 6) -> Job:
    nodes = []
    for number in range(draw(st.integers(1, most))):
        needs = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set()
        nodes.append(
            Node(
                draw(st.sampled_from("ab")),
                float(draw(st.integers(1, 20))),
                float(draw(st.integers(0, 10))),
                tuple(sorted(needs)),
                draw(st.sampled_from([1.0, 0.8])),
            )
        )
    return Job(tuple(nodes)).checked()


@pytest.mark.parametrize("name", PLACERS)
@settings(max_examples=15, deadline=None)
@given(job=_jobs(), workers=st.integers(1, 3))
def test_placements_are_complete_and_in_order(name: str, job: Job, workers: int) -> None:
    places = PLACERS[name](job, workers)
    # Raises for placements that are not.
    assert finish_s(job, workers, places) > 0
    assert PLACERS[name](job, workers) == places


def test_model_stays_on_its_worker() -> None:
    chain = Job(tuple(Node("ab"[n % 2], 10.0, 30.0, (n - 1,) if n else ()) for n in range(6)))
    places = dynamic(chain, 2)
    assert len({(chain.nodes[number].model, here) for number, here in places}) == 2


def test_beam_replicates_a_single_ready_operator() -> None:
    single = Job((Node("a", 100.0, 1.0),))
    assert beam(single, 2) == data_parallel(single, 2)


def test_beam_does_not_see_waiting() -> None:
    """Its cost is the sum of stages of a worker; the finish time also has the wait for inputs."""
    job = Job((Node("a", 10.0, 0.0), Node("a", 10.0, 0.0, (0,))), beta=0.1)
    assert finish_s(job, 2, ((0, (0,)), (1, (1,)))) == 20.0


@pytest.mark.parametrize(
    ("places", "text"),
    [
        (((0, (0,)),), "each operator once"),
        (((1, (0,)), (0, (0,))), "placed before its inputs"),
        (((0, (7,)), (1, (0,))), "known are 0 to 1"),
    ],
)
def test_invalid_placements_are_refused(places: Places, text: str) -> None:
    job = Job((Node("a", 1.0, 0.0), Node("a", 1.0, 0.0, (0,))))
    with pytest.raises(ValueError, match=text):
        finish_s(job, 2, places)


def test_operators_need_earlier_ones() -> None:
    with pytest.raises(ValueError, match="operator 0 must need earlier ones, not 1"):
        Job((Node("a", 1.0, 0.0, (1,)), Node("a", 1.0, 0.0))).checked()
