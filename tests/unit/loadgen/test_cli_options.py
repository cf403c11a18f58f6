"""Checks of options that several bench commands share."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from weft_bench.cli.options import counts, some_of, writable


@pytest.mark.parametrize(
    ("text", "found"), [("1", (1,)), ("1,8,64", (1, 8, 64)), (" 2 , 3 ", (2, 3))]
)
def test_numbers_are_counted(text: str, found: tuple[int, ...]) -> None:
    assert counts(text, "--x") == counts(text, "--x", empty=True) == found


@pytest.mark.parametrize("text", ["abc", "0", "1,-2", "1.5", "1;2"])
@pytest.mark.parametrize("empty", [False, True])
def test_other_numbers_are_refused(text: str, empty: bool) -> None:
    with pytest.raises(typer.BadParameter, match="not a list of numbers above 0"):
        counts(text, "--x", empty=empty)


@pytest.mark.parametrize("text", ["", " ", ","])
def test_none_is_accepted_only_if_allowed(text: str) -> None:
    assert counts(text, "--x", empty=True) == ()
    with pytest.raises(typer.BadParameter):
        counts(text, "--x")


def test_names_count_once_in_their_order() -> None:
    assert some_of("b, a,b,", ("a", "b"), "--x") == ("b", "a")
    assert some_of(" all", ("a", "b"), "--x") == ("a", "b")


@pytest.mark.parametrize(("text", "message"), [("a,z", "unknown: z"), (",", "the list is empty")])
def test_other_names_are_refused_with_those_that_are_known(text: str, message: str) -> None:
    with pytest.raises(typer.BadParameter, match=rf"{message}; known: a, b"):
        some_of(text, ("a", "b"), "--x")


def test_path_is_checked_by_writing(tmp_path: Path) -> None:
    assert writable("") == ""
    assert writable(str(tmp_path / "a" / "b")) == str(tmp_path / "a" / "b")
    assert not (tmp_path / "a" / "b").exists()
    with pytest.raises(typer.BadParameter, match="cannot be written: Is a directory"):
        writable(str(tmp_path))
