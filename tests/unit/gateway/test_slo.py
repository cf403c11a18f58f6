"""The SLO file."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner
from weft_gateway.cli import app
from weft_gateway.config import SettingsError
from weft_gateway.config import load as load_settings
from weft_gateway.model.limits import TenantRules
from weft_gateway.model.slo import Granted, Late, Scope, SloClass, Slos
from weft_gateway.slo import SloError, load
from weft_gateway.tenants import Tenants

EXAMPLE = """\
version: 1
default: batch
classes:
  chat:   {scope: turn, deadline: 8s, attainment: 0.9}
  report: {deadline: 2m, late: refuse}
  step:   {scope: call, deadline: 500ms}
  batch:  {}
tenants:
  - {key_digest: 0123456701234567, class: report, may: [chat, report]}
  - {key_digest: public}
"""


def written(folder: Path, text: str) -> str:
    file = folder / "slo.yaml"
    file.write_text(text)
    return str(file)


def test_file_defines_classes_and_grants(tmp_path: Path) -> None:
    slos = load(written(tmp_path, EXAMPLE))
    assert slos.classes == {
        "chat": SloClass("chat", Scope.TURN, 8.0, 0.9),
        "report": SloClass("report", Scope.PROGRAM, 120.0, late=Late.REFUSE),
        "step": SloClass("step", Scope.CALL, 0.5),
        "batch": SloClass("batch"),
    }
    # YAML 1.1 would read this digest as an octal number.
    assert slos.of("0123456701234567") == Granted("report", frozenset({"chat", "report"}))
    assert slos.of("public") == slos.of("unlisted") == Granted("batch", frozenset({"batch"}))


def test_weights_and_shares_multiply_those_of_the_tenants(tmp_path: Path) -> None:
    text = EXAMPLE.replace("batch:  {}", "batch: {weight: 2}").replace("0.9", "0.9, weight: 4")
    text = text.replace("public}", "public, class: chat, share: 0.5}")
    rules = Tenants(
        TenantRules(weight=3.0), {"listed": TenantRules(weight=5.0, tokens_per_minute=7)}
    )
    found = rules.weighted(load(written(tmp_path, text)))
    assert [found.weight(key) for key in ("public", "0123456701234567", "listed", "any")] == [
        3 * 4 * 0.5, 3 * 1, 5 * 2, 3 * 2,
    ]  # fmt: skip
    assert found.of("listed").tokens_per_minute == 7
    assert rules.weighted(Slos()).weight("listed") == 5.0


def test_without_grants_every_key_may_use_every_class(tmp_path: Path) -> None:
    slos = load(written(tmp_path, EXAMPLE.partition("tenants")[0]))
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
        ("0.9", "0.9, weight: 0", 4, "classes.chat.weight: Input should be greater than or equal"),
        ("0.9", "0.9, weight: 1e-200", 4, "classes.chat.weight: Input should be greater than or"),
        ("0.9", "0.9, weight: 1001", 4, "classes.chat.weight: Input should be less than or eq"),
        ("public}", "public, share: 1e-5}", 10, "tenants.1.share: Input should be greater than"),
        ("deadline: 2m, ", "", 5, "classes.report: late: refuse needs a deadline"),
        ("  step:", "  chat:", 6, "classes.chat: the key occurs twice"),
        ("step:", "a step:", 6, "classes.a step: a class name has 1 to 32 letters"),
        ("may: [chat", "may: [chap", 9, "tenants.0.may.0: unknown class 'chap'; did you mean chat"),
        ("class: report", "class: x", 9, "tenants.0.class: unknown class 'x'; known: chat, rep"),
        ("public}", "public, share: 1.5}", 10, "tenants.1.share: Input should be less than or"),
        ("public}", "public, my: [chat]}", 10, "tenants.1.my: unknown key; did you mean may?"),
        ("key_digest: public", "class: chat", 10, "tenants.1.key_digest: Field required"),
        ("public}", "0123456701234567}", 10, "tenants.1.key_digest: another entry has the same"),
        ("public}", "public", 11, "not valid YAML"),
        ("public}", "PUBLIC}", 10, "tenants.1.key_digest: must be 16 hexadecimal digits"),
        ("batch:  {}", "batch:", 7, "classes.batch: must be a mapping"),
        ("0.9", "often", 4, "classes.chat.attainment: must be a number"),
        ("{key_digest: public}", "public", 10, "tenants.1: must be a mapping"),
        ("may: [chat, report]", "may: chat", 9, "tenants.0.may: must be a list"),
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
    text = EXAMPLE.partition("tenants")[0] + f"tenants: {tenants}\n"
    found = CliRunner().invoke(app, ["slo", "check", written(tmp_path, text)])
    assert (found.exit_code, len(found.stderr.splitlines())) == (2, 1)


def test_check_shows_the_classes(tmp_path: Path) -> None:
    runner = CliRunner(env={"COLUMNS": "120"})
    found = runner.invoke(app, ["slo", "check", written(tmp_path, EXAMPLE)])
    assert found.exit_code == 0
    for text in ("chat", "turn", "8 s", "report", "120 s", "refuse", "batch", "all others"):
        assert text in found.stdout
    assert (
        "share"
        not in runner.invoke(
            app, ["slo", "check", written(tmp_path, EXAMPLE.partition("tenants")[0])]
        ).stdout
    )


def test_check_shows_the_shares_of_keys(tmp_path: Path) -> None:
    text = EXAMPLE.replace("batch:  {}", "batch: {weight: 4}").replace(
        "public}", "public, share: 0.125}"
    )
    found = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["slo", "check", written(tmp_path, text)])
    rows = [[cell.strip() for cell in row.split("│")[1:-1]] for row in found.stdout.splitlines()]
    assert ["public", "batch", "batch", "0.125", "0.5"] in rows
    assert ["0123456701234567", "report", "chat, report", "1", "1"] in rows


def test_invalid_file_is_an_error_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"slo_file .*No such file"):
        load_settings(slo_file=str(tmp_path / "missing.yaml"))
