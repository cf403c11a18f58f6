"""KV swap on a real engine: with any preemptions, every output equals that of an undisturbed
run."""

from __future__ import annotations

from typing import Any

import cpu_engine
import pytest

pytestmark = pytest.mark.engine

DISPLACED = ["swap", "no swap", "small"]


@pytest.fixture(scope="module", params=["sync", "async"])
def runs(request: pytest.FixtureRequest) -> dict[str, Any]:
    return cpu_engine.run("preempting.py", request.param)


@pytest.mark.parametrize("name", DISPLACED)
def test_every_output_is_that_of_an_undisturbed_run(runs, name):
    assert len(runs["undisturbed"]["tokens"]) == 120
    assert runs[name]["forced"] > 60
    assert runs[name]["tokens"] == runs["undisturbed"]["tokens"]


def test_every_output_is_the_same_with_limits_for_short_calls(runs):
    assert runs["short calls"]["limited"] > 10
    assert runs["short calls"]["tokens"] == runs["undisturbed"]["tokens"]


@pytest.mark.parametrize("name", ["undisturbed", "short calls", *DISPLACED])
def test_nothing_is_left_behind(runs, name):
    run = runs[name]
    assert (run["left"], run["free"], run["violations"]) == (0, 0, [])


def test_blocks_went_out_and_came_back(runs):
    assert runs["swap"]["swapped_out"] > 60
    assert runs["swap"]["swapped_in"] > 60
    assert runs["no swap"]["swapped_out"] == runs["no swap"]["swapped_in"] == 0


def test_a_buffer_that_is_too_small_drops_and_calls_are_computed_again(runs):
    assert runs["small"]["dropped"] > 60
    assert 0 < runs["small"]["swapped_in"] < runs["swap"]["swapped_in"]


def test_restored_blocks_are_used(runs):
    """A swap that saves nothing changes outputs, so the comparison can fail."""
    assert runs["broken"]["swapped_in"] > 60
    assert runs["broken"]["tokens"] != runs["undisturbed"]["tokens"]
