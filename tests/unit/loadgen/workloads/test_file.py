"""Workload files: nothing is lost, and errors name the line."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft_bench.workloads import file as workload_file
from weft_bench.workloads.registry import WORKLOADS
from weft_bench.workloads.schema import Part, TraceCall, TraceError, TraceProgram
from weft_bench.workloads.traces.files import read_trace

TEXT = st.text(max_size=8)
TIMES = st.floats(0, 1e9, allow_nan=False)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Recorded texts also contain unpaired surrogates.
    | st.text(st.characters(), max_size=6)
    | st.just("\ud83d"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.lists(st.dictionaries(TEXT, JSON, max_size=3), max_size=3).map(tuple)


@st.composite
def programs(draw):
    calls = []
    for number in range(draw(st.integers(0, 4))):
        earlier = st.lists(st.integers(0, number - 1), max_size=3) if number else st.just([])
        before = calls[-1] if calls else TraceCall()
        grow = draw(st.booleans())
        calls.append(
            TraceCall(
                messages=(before.messages if grow else ()) + draw(OBJECTS),
                tools=draw(st.sampled_from([before.tools, ()])) + draw(OBJECTS),
                output_bytes=draw(st.integers(0, 10**9)),
                output_tokens=draw(st.integers(0, 10**9)),
                gap_s=draw(TIMES),
                after=draw(st.none() | earlier.map(tuple)),
                parts=(before.parts if grow else ())
                + tuple(draw(st.lists(st.builds(Part, TEXT, st.integers(0, 9), TEXT), max_size=3))),
                answer=draw(TEXT),
                tool_s=tuple(draw(st.lists(TIMES, max_size=2))),
            )
        )
    return TraceProgram(draw(TEXT), tuple(calls), draw(st.none() | TIMES))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(programs(), min_size=1, max_size=3), st.sampled_from([".jsonl", ".jsonl.xz"]))
def test_written_programs_are_read_back_without_loss(written, suffix):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"w{suffix}"
        assert workload_file.write(path, "made up", written) == len(written)
        name, found = read_trace(path, seed=9)
        # Compares text, because 1, 1.0 and True are equal but not identical.
        assert (name, repr(list(found))) == ("made up", repr(written))


def test_equal_values_of_different_types_stay_distinct(tmp_path):
    calls = tuple(TraceCall(messages=({"n": value},)) for value in (1, True, 1.0))
    path = tmp_path / "w.jsonl"
    workload_file.write(path, "w", [TraceProgram("p", calls)])
    (found,) = read_trace(path, seed=0)[1]
    assert [repr(call.messages[0]["n"]) for call in found.calls] == ["1", "True", "1.0"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_is_read_back_unchanged(tmp_path, name):
    made = list(WORKLOADS[name].generate(2, 3))
    path = tmp_path / "w.jsonl"
    workload_file.write(path, name, made, {"seed": 2})
    title, found = read_trace(path, seed=0)
    assert (title, list(found)) == (name, made)
    header = json.loads(path.read_text().splitlines()[0])
    assert header == {"weft_workload": 2, "name": name, "made_of": {"seed": 2}}


HEADER = '{"weft_workload": 2, "name": "w"}'


def broken(call):
    return json.dumps({"id": "p", "calls": [{"output_tokens": 3}, call]})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "line 3: Expecting value"),
        ("[1]", "line 3: the record is not a JSON object"),
        ('{"id": "p"}', "line 3: Object missing required field `calls`"),
        ('{"id": 7, "calls": []}', "line 3: Expected `str`, got `int` - at `$.id`"),
        ('{"id": "p", "calls": [], "arrives": 3}', "line 3: Object contains unknown field"),
        ('{"id": "p", "calls": [], "arrival_s": "noon"}', "got `str` - at `$.arrival_s`"),
        (broken([]), "line 3: Expected `object`, got `array` - at `$.calls[1]`"),
        (broken({"prompt": "x"}), "unknown field `prompt` - at `$.calls[1]`"),
        (broken({"gap_s": -1}), "Expected `float` >= 0.0 - at `$.calls[1].gap_s`"),
        (broken({"gap_s": float("nan")}), "Expected `float` >= 0.0 - at `$.calls[1].gap_s`"),
        (broken({"output_tokens": True}), "got `bool` - at `$.calls[1].output_tokens`"),
        (broken({"parts": [["x", -1, ""]]}), "`int` >= 0 - at `$.calls[1].parts[0][1]`"),
        (broken({"parts": ["x"]}), "got `str` - at `$.calls[1].parts[0]`"),
        (broken({"messages": ["hi"]}), "got `str` - at `$.calls[1].messages[0]`"),
        (broken({"messages": "hi"}), "got `str` - at `$.calls[1].messages`"),
        (broken({"answer": 4}), "got `int` - at `$.calls[1].answer`"),
        (broken({"after": 0}), "got `int` - at `$.calls[1].after`"),
        (broken({"after": [1]}), "line 3: call 1 of p must wait for earlier calls"),
    ],
)
def test_invalid_record_is_reported_with_its_line(tmp_path, line, message):
    path = tmp_path / "w.jsonl"
    path.write_text(f'{HEADER}\n{{"id": "fine", "calls": []}}\n{line}\n')
    _, found = read_trace(path, seed=0)
    assert next(found).id == "fine"
    with pytest.raises(TraceError) as raised:
        next(found)
    assert message in str(raised.value)
    assert str(path) in str(raised.value)


def test_another_version_is_refused(tmp_path):
    path = tmp_path / "w.jsonl"
    path.write_text('{"weft_workload": 1, "name": "w"}\n')
    with pytest.raises(TraceError, match="line 1: format version 1 is unknown, expected 2"):
        read_trace(path, seed=0)


@pytest.mark.parametrize(
    "wrong",
    [
        TraceCall(messages=({"role": float("nan")},)),
        TraceCall(messages=({"role": b"bytes"},)),
        # JSON would return these as a list and as the name "1".
        TraceCall(messages=({"content": ("one", "two")},)),
        TraceCall(tools=({"function": {1: "one"}},)),
    ],
)
def test_values_that_json_cannot_represent_leave_no_file(tmp_path, wrong):
    path = tmp_path / "w.jsonl"
    fine = TraceProgram("fine", (TraceCall(),))
    with pytest.raises(TraceError, match="program 2"):
        workload_file.write(path, "w", [fine, TraceProgram("wrong", (wrong,))])
    assert list(tmp_path.iterdir()) == []


def test_unwritable_path_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match="cannot be written"):
        workload_file.write(tmp_path / "file" / "w.jsonl", "w", [])
