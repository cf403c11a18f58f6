"""The SLO file."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner
from weft_gateway.cli import app
from weft_gateway.config import SettingsError
from weft_gateway.config import load as load_settings
from weft_gateway.model.slo import Granted, Late, Scope, SloClass, Slos
from weft_gateway.slo import SloError, load

EXAMPLE = """\
version: 1
default: batch
classes:
  chat:   {scope: turn, deadline: 8s, attainment: 0.9}
  report: {deadline: 2m, late: refuse}
  step:   {scope: call, deadline: 500ms}
  batch:  {}
"""


def written(folder: Path, text: str) -> str:
    file = folder / "slo.yaml"
    file.write_text(text)
    return str(file)


def test_file_defines_classes(tmp_path: Path) -> None:
    slos = load(written(tmp_path, EXAMPLE))
    assert slos.classes == {
        "chat": SloClass("chat", Scope.TURN, 8.0, 0.9),
        "report": SloClass("report", Scope.PROGRAM, 120.0, late=Late.REFUSE),
        "step": SloClass("step", Scope.CALL, 0.5),
        "batch": SloClass("batch"),
    }
    assert slos.of("any") == Granted("batch", frozenset(slos.classes))
    assert load("") == Slos()


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("version: 1", "version: 2", 1, "version: Input should be 1"),
        ("version: 1", "versoin: 1", 1, "versoin: unknown key; did you mean version?"),
        ("default: batch", "default: bach", 2, "default: unknown class 'bach'; did you mean batch"),
        ("scope: turn", "scope: thread", 4, "classes.chat.scope: Input should be 'program', 'turn"),
        ("8s", "8", 4, "classes.chat.deadline: must be a duration with a unit"),
        ("8s", "0s", 4, "classes.chat.deadline: must be more than 0"),
        ("8s", "-3s", 4, "classes.chat.deadline: must be more than 0"),
        ("8s", "25h", 4, "classes.chat.deadline: must be more than 0 and at most 24h"),
        ("0.9", "1", 4, "classes.chat.attainment: Input should be less than 1"),
        ("0.9", "nan", 4, "classes.chat.attainment: must be a finite number"),
        ("0.9", "0.9, scope: call", 4, "classes.chat.scope: the key occurs twice"),
        ("attainment", "atainment", 4, "classes.chat.atainment: unknown key; did you mean attain"),
        ("deadline: 2m, ", "", 5, "classes.report: late: refuse needs a deadline"),
        ("  step:", "  chat:", 6, "classes.chat: the key occurs twice"),
        ("step:", "a step:", 6, "classes.a step: a class name has 1 to 32 letters"),
        ("batch:  {}", "batch:  {}}", 7, "not valid YAML"),
        (
            "batch:  {}",
            "batch:  {}\ntenants: [{key_digest: 0123456789abcdef}]",
            8,
            "tenants: the classes of keys are in the keys file now (WEFT_KEYS_FILE)",
        ),
        ("batch:  {}", "batch:", 7, "classes.batch: must be a mapping"),
        ("0.9", "often", 4, "classes.chat.attainment: must be a number"),
        ("step:", '"a\\nb":', 6, "classes.'a\\nb': a class name has 1 to 32 letters"),
    ],
)
def test_each_error_names_line_and_path(
    old: str, new: str, line: int, said: str, tmp_path: Path
) -> None:
    assert old in EXAMPLE
    file = written(tmp_path, EXAMPLE.replace(old, new, 1))
    with pytest.raises(SloError) as error:
        load(file)
    assert f"{file}:{line}: {said}" in str(error.value)


@pytest.mark.parametrize("text", ["", "# nothing", "- a\n- b", "5"])
def test_file_that_is_no_mapping(text: str, tmp_path: Path) -> None:
    with pytest.raises(SloError, match=r"slo.yaml:1: must be a mapping$"):
        load(written(tmp_path, text))


@pytest.mark.parametrize("classes", ["{}", str({f"c{n}": {} for n in range(65)})], ids=[0, 65])
def test_number_of_classes(classes: str, tmp_path: Path) -> None:
    with pytest.raises(SloError, match="classes: must have 1 to 64 classes"):
        load(written(tmp_path, f"version: 1\ndefault: c1\nclasses: {classes}"))


def test_one_check_shows_all_errors(tmp_path: Path) -> None:
    file = written(tmp_path, EXAMPLE.replace("8s", "8").replace("500ms", "5 years"))
    found = CliRunner().invoke(app, ["slo", "check", file])
    assert found.exit_code == 2
    assert [line.split(": ")[1] for line in found.stderr.splitlines()] == [
        "classes.chat.deadline", "classes.step.deadline",
    ]  # fmt: skip


@pytest.mark.parametrize("tenants", ["&a [*a]", "[" * 5000 + "]" * 5000], ids=["loop", "deep"])
def test_a_file_that_cannot_be_read_is_one_error(tenants: str, tmp_path: Path) -> None:
    text = EXAMPLE + f"tenants: {tenants}\n"
    found = CliRunner().invoke(app, ["slo", "check", written(tmp_path, text)])
    assert (found.exit_code, len(found.stderr.splitlines())) == (2, 1)


def test_check_shows_the_classes(tmp_path: Path) -> None:
    runner = CliRunner(env={"COLUMNS": "120"})
    found = runner.invoke(app, ["slo", "check", written(tmp_path, EXAMPLE)])
    assert found.exit_code == 0
    for text in ("chat", "turn", "8 s", "report", "120 s", "refuse", "batch (default)"):
        assert text in found.stdout


def test_invalid_file_is_an_error_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"slo_file .*No such file"):
        load_settings(slo_file=str(tmp_path / "missing.yaml"))
