"""The true tags from a full tokenisation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from weft_bench.micro.tags.truth import (
    bracketed,
    chatml,
    counting,
    headed,
    reached,
    spans,
    tokenizers,
)
from weft_deploy.local.demo import corpus, tokenizer
from weft_deploy.local.demo_model import VOCABULARY

TOOL = {"type": "function", "function": {"name": "look", "description": "See.", "parameters": {}}}
CALL = {"id": "1", "function": {"name": "look", "arguments": '{"at": "Oslo"}'}}
MESSAGES = [
    {"role": "system", "content": "You answer briefly."},
    {"role": "user", "content": "What is there to see in Oslo?\n"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "A fjord."},
    {"role": "assistant", "content": "  A fjord\u2026"},
    {"role": "user", "content": "And?"},
]
BODIES = [
    {"messages": MESSAGES, "tools": [TOOL]},
    {"messages": MESSAGES},
    {"messages": MESSAGES[1:], "tools": [TOOL, TOOL]},
    {"messages": MESSAGES[1:]},
]
TEMPLATE = Path("deploy/weft_deploy/local/demo/chat_template.jinja")


@pytest.mark.parametrize("body", BODIES)
def test_rendering_equals_the_demo_models_template(body: dict[str, Any]) -> None:
    jinja2 = pytest.importorskip("jinja2")
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string((Path(__file__).parents[5] / TEMPLATE).read_text("utf-8"))
    rendered = template.render(
        messages=body["messages"], tools=body.get("tools"), add_generation_prompt=True
    )
    assert "".join(text for _, text in chatml(body)) == rendered


def test_tokens_of_pieces_add_up_to_the_whole_prompt() -> None:
    demo = tokenizer.train(corpus.pieces(), VOCABULARY)
    tokens = counting(lambda text: len(demo.encode(text).ids))
    for body in BODIES:
        pieces = chatml(body)
        whole = len(demo.encode("".join(text for _, text in pieces)).ids)
        assert spans(pieces, tokens)[-1][0] == whole


@pytest.mark.parametrize("template", [chatml, headed, bracketed])
def test_every_template_has_all_parts_in_their_order(template: Any) -> None:
    pieces = template(BODIES[0])
    text = "".join(text for _, text in pieces)
    places = [text.index(part) for part in ("Oslo?", "fjord.", "fjord\u2026", "And?")]
    assert places == sorted(places)
    assert [tag for tag, _ in pieces if tag][-5:] == [3, 1, 2, 1, 3]
    first_query = text.index("Oslo?")
    assert text.index("briefly") < first_query
    assert text.index("See.") < first_query


def test_control_tokens_count_one_each() -> None:
    tokens = counting(len)
    assert tokens("<|a|>xyz<|b|><|c|>") == 6
    assert spans([(4, "<|a|>xy"), (3, "<|b|>z"), (0, "<|c|>")], tokens) == [(3, 4), (5, 3), (6, 3)]


def test_earlier_pieces_have_the_highest_later_tag() -> None:
    assert reached([(1, 4), (2, 1), (3, 3), (4, 1)]) == [(1, 4), (2, 3), (3, 3), (4, 1)]


@pytest.mark.slow
def test_available_tokenizers_count() -> None:
    found = tokenizers(lambda: ["some text to train on", "and more of it"])
    assert {"demo, 6k", "trained, 32k"} <= found.keys()
    for template, tokens in found.values():
        assert spans(template(BODIES[0]), tokens)[-1][0] > 30
