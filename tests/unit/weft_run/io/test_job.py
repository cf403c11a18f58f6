"""The parts of a job that are checked before the run."""

from __future__ import annotations

from dataclasses import replace

from weft_run.io.job import models_of
from weft_run.language.spec import load

TEXT = """
weft: 1
ops:
  a: {llm: {user: a, model: large}}
  b: {llm: {user: b, model: large}}
  c: {llm: {user: c}}
outputs: {a: a, b: b, c: c}
model: small
"""


def test_each_model_has_the_place_of_its_text() -> None:
    assert models_of(load(TEXT, "w.yaml")) == {
        "large": ("a", 4, "w.yaml:4: operator 'a'"),
        "small": ("", 8, "w.yaml:8: model"),
    }
    nameless = load(TEXT.replace("model: small", ""), "w.yaml")
    assert models_of(nameless)[""] == ("c", 6, "w.yaml:6: operator 'c'")
    # The model of the run has no place in the file.
    assert models_of(replace(nameless, model="m"))["m"].text == "w.yaml:6: operator 'c'"


def test_the_line_of_the_model_does_not_change_the_workflow() -> None:
    moved = TEXT.replace("weft: 1", "weft: 1\n# a comment")
    assert load(moved).signature() == load(TEXT).signature()
