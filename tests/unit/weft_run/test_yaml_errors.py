"""Places in YAML files, and nearest names."""

from __future__ import annotations

from itertools import pairwise

import pytest
import yaml
from weft_run import yaml_errors

ROOT = yaml.compose("a: 1\nb:\n  - c: 2\n    d: 3\n  - e\na: 4\n")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ((), (1, 1)),
        (("a",), (6, 1)),
        (("b", 0, "d"), (4, 5)),
        (("b", 1), (5, 5)),
        (("b", 0, "missing"), (3, 5)),
        (("b", "missing"), (2, 1)),
    ],
)
def test_the_mark_of_a_path(path: yaml_errors.KeyPath, place: tuple[int, int]) -> None:
    assert yaml_errors.mark(ROOT, path) == place


def test_the_node_at_a_path() -> None:
    node = yaml_errors.at(ROOT, ("b", 0, "c"))
    assert isinstance(node, yaml.ScalarNode)
    assert node.value == "2"
    assert yaml_errors.at(ROOT, ("b", 7)) is None
    assert yaml_errors.at(ROOT, ("a", "x")) is None


def test_duplicates_are_found_at_all_levels() -> None:
    root = yaml.compose("a: {x: 1, x: 2}\nb: [{y: 1, y: 2}]\n? [1]\n: 2\na: 3\n")
    assert [path for path, _ in yaml_errors.duplicates(root)] == [("a", "x"), ("b", 0, "y"), ("a",)]


def test_the_nearest_name_or_all_names() -> None:
    assert yaml_errors.nearest("fromat", ["format", "llm"]) == "; did you mean format?"
    assert yaml_errors.nearest("xyz", ["format", "llm"]) == "; known: format, llm"
    assert yaml_errors.dotted(("ops", "a", 1)) == "ops.a.1: "


NINE = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in pairwise("abcdefghijkl")
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NINE, "more than 200000 values"),
        ("a: &a [*a]", "an alias contains itself"),
        ("[" * 5000 + "]" * 5000, "nested too deeply"),
        ("{a: " * 1200 + "}" * 1200, "nested too deeply"),
        ("a: \x07", "not valid YAML: unacceptable character"),
        ("x" * (4 * 2**20 + 1), "larger than 4 MiB"),
    ],
    ids=["aliases", "loop", "lists", "mappings", "character", "size"],
)
def test_texts_that_are_too_large_or_no_yaml(text: str, said: str) -> None:
    with pytest.raises(yaml_errors.UnreadableError, match=said) as error:
        yaml_errors.read(text, yaml.BaseLoader)
    assert len(str(error.value).splitlines()) == 1


def test_place_of_invalid_yaml() -> None:
    with pytest.raises(yaml_errors.UnreadableError) as error:
        yaml_errors.read("a: 1\n\tb: 2", yaml.BaseLoader)
    assert error.value.place == (2, 1)
    assert yaml_errors.read("", yaml.BaseLoader) == (None, None)
