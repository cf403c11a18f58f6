"""Figures 5 and 7 of Sutradhara with a model that computes: hits, and the same outputs."""

from __future__ import annotations

from typing import Any

import cpu_engine
import pytest

pytestmark = pytest.mark.engine

PLAYED = ["by age", "by tag"]


@pytest.fixture(scope="module")
def runs() -> dict[str, Any]:
    found = cpu_engine.run("two_iterations.py")
    for name in PLAYED:
        print(f"{name}: cached tokens {found[name]['hits']}")
    return found


def test_by_age_every_second_iteration_pushes_out_what_the_next_one_needs(runs):
    hits = runs["by age"]["hits"]
    assert [hits[call] for call in ("R22", "R12", "R32")] == [128, 64, 32]


def test_by_tag_the_first_iterations_contexts_stay(runs):
    hits = runs["by tag"]["hits"]
    assert [hits[call] for call in ("R22", "R12", "R32")] == [128, 128, 128]


@pytest.mark.parametrize("name", PLAYED)
def test_the_outputs_are_those_of_an_engine_that_computes_everything(runs, name):
    reference = runs["no cache"]
    assert not any(reference["hits"].values())
    assert len({tuple(tokens) for tokens in reference["tokens"].values()}) > 1
    assert runs[name]["tokens"] == reference["tokens"]


@pytest.mark.parametrize("name", ["no cache", *PLAYED])
def test_nothing_is_left_behind(runs, name):
    assert (runs[name]["in_use"], runs[name]["violations"]) == (0, [])
