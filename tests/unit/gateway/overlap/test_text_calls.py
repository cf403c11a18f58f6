"""Tool calls written as a JSON array in text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.overlap.text_calls import Allowance, TextCalls

SEARCH = '{"name": "search", "arguments": {"q": "a [{\\"}] b"}}'
PLOT = '{"parameters": {"xs": [1, 2]}, "name": "plot"}'


def read(*pieces, **options):
    reader = TextCalls(Allowance(), **options)
    return [call for piece in pieces for call in reader.feed(piece)]


def test_element_is_reported_when_its_brace_closes():
    reader = TextCalls(Allowance())
    assert reader.feed(f"[{SEARCH[:-1]}") == []
    assert reader.feed("}") == [("search", '{"q": "a [{\\"}] b"}')]
    assert reader.feed(f",\n  {PLOT[:-1]}") == []
    assert reader.feed("}]") == [("plot", '{"xs": [1, 2]}')]


@given(st.data())
def test_calls_do_not_depend_on_the_chunks(data):
    text = f"Let me see. [1] \n[{SEARCH} , {PLOT}]\nand [[{PLOT}]]"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert [name for name, _ in read(*pieces)] == ["search", "plot", "plot"]
    assert read(*pieces) == read(text)


@pytest.mark.parametrize(
    ("element", "call"),
    [
        ({"tool": "search", "query": "x"}, ("search", {"query": "x"})),
        ({"tool": "now"}, ("now", {})),
        ({"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}, ("f", {"a": 1})),
        ({"name": "f", "arguments": '{"a": 1}'}, ("f", {"a": 1})),
    ],
)
def test_other_formats_of_a_call_are_read(element, call):
    [(name, arguments)] = read(json.dumps([element]))
    assert (name, json.loads(arguments)) == call


@pytest.mark.parametrize(
    "text",
    [
        '[{"name": "Ada"}, {"name": "Bob"}]',
        '{"name": "f", "arguments": {}}',
        '[{"name": 1, "arguments": {}}]',
        '[{"name": "f", "arguments": [1]}]',
        '[{"name": "f", "arguments": "1"}]',
        '[{"name": "f", "arguments": "{"}]',
        '[{"name": "f", "arguments": }]',
        '["a", {"name": "f", "arguments": {}}]',
        "[" * 5000,
        '[{"a": ' + "[" * 100_000 + "]" * 100_000 + "}]",
    ],
)
def test_other_text_is_no_call(text):
    assert read(text) == []


def test_calls_of_unknown_tools_are_ignored():
    assert [name for name, _ in read(f"[{SEARCH},{PLOT}]", names={"search"})] == ["search"]


def test_endless_element_is_dropped_and_its_memory_freed():
    allowance = Allowance(1000)
    reader = TextCalls(allowance)
    assert reader.feed('[{"name": "f", "arguments": {"a": "') == []
    for _ in range(100):
        assert reader.feed("x" * 100) == []
    assert allowance.take(1000)
    allowance.give_back(1000)
    assert reader.feed('"}}') == []
    assert [name for name, _ in reader.feed(f"] [{PLOT}]")] == ["plot"]
