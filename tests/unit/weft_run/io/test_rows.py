"""Rows of files: checks with file and line, and complete outputs."""

from __future__ import annotations

import json
import os
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from weft_run.io.rows import Input, RowsError, check_output, write_output

TYPES = {"q": "str", "n": "int", "docs": "list"}
GOOD = {"q": "a", "n": 1, "docs": [], "more": None}


def jsonl(folder: Path, *rows: Any) -> Path:
    path = folder / "in.jsonl"
    path.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    )
    return path


def test_rows_have_the_inputs_of_the_workflow(tmp_path: Path) -> None:
    rows = Input(jsonl(tmp_path, GOOD, GOOD | {"q": "b"}, GOOD), TYPES)
    assert rows.scan().number == 3
    assert list(rows.read(1, 2)) == [(1, {"q": "b", "n": 1, "docs": []})]
    assert rows.scan().digest == rows.scan().digest
    jsonl(tmp_path, GOOD)
    assert rows.scan().digest != Input(jsonl(tmp_path, GOOD, GOOD), TYPES).scan().digest


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "not valid JSON: .* at character 2$"),
        (GOOD | {"q": None}, "input 'q' must be of type str, is null"),
        (GOOD | {"n": 2**64}, "input 'n' has an integer of more than 64 bits; write it as a text"),
        (GOOD | {"docs": [{"x": -(2**63) - 1}]}, "input 'docs' has an integer of more than"),
        (GOOD | {"n": int("9" * 300)}, "input 'n' has an integer"),
        ([1], "a row must be a JSON object"),
        ({"q": "a"}, "input 'n' is missing; the row has: q"),
        ('{"q": "a", "n": 1, "docs": [], "q": "b"}', "the key 'q' appears twice"),
        ('{"q": "a", "n": 1, "docs": [{"x": 1, "x": 2}]}', "the key 'x' appears twice"),
        ("[" * 1010 + "]" * 1010, "the values are nested too deeply"),
        (GOOD | {"n": True}, "input 'n' must be of type int, is bool"),
        (GOOD | {"docs": "x"}, "input 'docs' must be of type list, is str"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: Any, message: str) -> None:
    path = jsonl(tmp_path, GOOD, row, GOOD)
    with pytest.raises(RowsError, match=f"^{path}:2: {message}"):
        Input(path, TYPES).scan()


def test_integers_of_64_bits_and_unread_ones_are_kept(tmp_path: Path) -> None:
    docs = [2**64 - 1, -(2**63), "9" * 30]
    rows = Input(jsonl(tmp_path, GOOD | {"docs": docs, "unread": 2**70}), TYPES)
    assert rows.scan().number == 1
    assert next(rows.read(0, 1))[1]["docs"] == docs


def test_a_byte_order_mark_and_blank_lines_are_no_rows(tmp_path: Path) -> None:
    path = jsonl(tmp_path, "\ufeff" + json.dumps(GOOD), "", " \t", GOOD | {"q": "b"}, "")
    rows = Input(path, TYPES)
    assert rows.scan().number == 2
    assert [(number, row["q"]) for number, row in rows.read(0, 2)] == [(0, "a"), (1, "b")]
    assert rows.columns() == list(GOOD)
    jsonl(tmp_path, GOOD, "", {})
    with pytest.raises(RowsError, match=f"^{path}:3: input 'q' is missing"):
        rows.scan()


def test_many_errors_are_cut(tmp_path: Path) -> None:
    with pytest.raises(RowsError) as error:
        Input(jsonl(tmp_path, *["{"] * 50), TYPES).scan()
    assert len(str(error.value).splitlines()) == 20


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(RowsError, match="No such file"):
        Input(tmp_path / "none.jsonl", {}).scan()
    with pytest.raises(RowsError, match=r"must be a \.jsonl"):
        Input(tmp_path / "in.csv", {})
    with pytest.raises(RowsError, match="does not exist"):
        check_output(tmp_path / "none" / "out.jsonl", tmp_path / "in.jsonl")


def test_the_output_is_complete_or_missing(tmp_path: Path) -> None:
    def rows() -> Any:
        yield {"row": 0}
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_output(tmp_path / "out.jsonl", rows(), [])
    assert not (tmp_path / "out.jsonl").exists()
    write_output(tmp_path / "out.jsonl", [{"row": 0, "a": "x", "error": None}], ["a"])
    assert (tmp_path / "out.jsonl").read_text() == '{"row":0,"a":"x","error":null}\n'


def test_parquet_in_and_out(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    table = pyarrow.Table.from_pylist([GOOD | {"docs": '["a"]'}, GOOD | {"docs": "[]"}])
    parquet.write_table(table, tmp_path / "in.parquet")
    rows = Input(tmp_path / "in.parquet", TYPES)
    assert rows.scan().number == 2
    assert next(rows.read(0, 1)) == (0, {"q": "a", "n": 1, "docs": ["a"]})
    error = {"op": "a", "code": "timeout", "message": "slow", "attempts": 3}
    made = [{"row": 0, "a": "x", "b": [1], "error": None}, {"row": 1, "a": None, "error": error}]
    write_output(tmp_path / "out.parquet", made, ["a", "b"])
    found = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert found[0] == {"row": 0, "a": "x", "b": "[1]", "error": None}
    assert found[1]["error"] == error
    bad = pyarrow.Table.from_pylist([GOOD | {"n": "x"}])
    parquet.write_table(bad, tmp_path / "in.parquet")
    with pytest.raises(RowsError, match=r"in\.parquet:row 1: input 'n'"):
        rows.scan()


def test_values_that_are_nested_too_deeply_are_named(tmp_path: Path) -> None:
    deep = json.dumps({"q": '"[[['}) + "\n" + '{"q": ' + "[" * 101 + "]" * 101 + "}"
    with pytest.raises(RowsError, match=r"in\.jsonl:2: the values are nested too deeply"):
        Input(jsonl(tmp_path, deep), {"q": "any"}).scan()
    brackets = {"q": "[" * 5000, "n": [[1]] * 200}
    assert Input(jsonl(tmp_path, brackets), {"q": "any"}).scan().number == 1


def test_an_output_that_exists_is_a_regular_file(tmp_path: Path) -> None:
    path = jsonl(tmp_path, GOOD)
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    for name, what in (("pipe", "no regular file"), ("folder", "a folder")):
        with pytest.raises(RowsError, match=f"{name}.jsonl: is {what}; choose another output"):
            check_output(tmp_path / f"{name}.jsonl", path)
    (tmp_path / "earlier.jsonl").touch()
    check_output(tmp_path / "earlier.jsonl", path)


def test_the_output_is_not_the_input(tmp_path: Path) -> None:
    path = jsonl(tmp_path, GOOD)
    (tmp_path / "link.jsonl").symlink_to(path)
    for output in (path, tmp_path / "link.jsonl"):
        with pytest.raises(RowsError, match="is the input; choose another output"):
            check_output(output, path)
    check_output(tmp_path / "out.jsonl", path)


def test_a_changed_input_is_named(tmp_path: Path) -> None:
    path = jsonl(tmp_path, GOOD)
    rows = Input(path, TYPES)
    found = rows.scan()
    rows.check(found)
    for change in (lambda: path.write_text(""), path.unlink):
        change()
        with pytest.raises(RowsError, match="has changed during the run"):
            rows.check(found)


def test_a_repeated_column_of_parquet_is_named(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet as parquet

    texts = pyarrow.array(["a"])
    table = pyarrow.Table.from_arrays([texts, texts], names=["q", "q"])
    parquet.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(RowsError, match="the column 'q' appears twice"):
        Input(tmp_path / "in.parquet", {"q": "str"}).scan()


@pytest.mark.parametrize("value", [Decimal("1.5"), b"x", datetime(2026, 1, 1)])
def test_a_value_of_parquet_that_json_lacks_is_named(tmp_path: Path, value: Any) -> None:
    import pyarrow
    import pyarrow.parquet as parquet

    table = pyarrow.Table.from_pylist([{"price": value, "unused": value}])
    parquet.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(RowsError, match=r"row 1: input 'price' is not JSON: .*convert it"):
        Input(tmp_path / "in.parquet", {"price": "any"}).scan()


def test_parquet_without_pyarrow_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(RowsError, match="pyarrow: make install"):
        Input(tmp_path / "in.parquet", {})
