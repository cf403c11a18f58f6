"""At least 95 of 100 blocks get the tag of a full tokenisation."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from weft_bench.micro.tags.dialogues import Program, dialogues
from weft_bench.micro.tags.truth import Tokens, chatml, counting, headed
from weft_bench.micro.tags.way import tag_call, tag_programs
from weft_bench.stats import mean
from weft_deploy.local.demo import corpus, tokenizer
from weft_deploy.local.demo_model import VOCABULARY
from weft_gateway.engine.tokens import TokenCounter

DATA = Path(__file__).parents[6] / "shared/data"
WARM_UP = 20


@cache
def demo_tokens() -> Tokens:
    made = tokenizer.train(corpus.pieces(), VOCABULARY)
    return counting(lambda text: len(made.encode(text).ids))


def agents(seed: int, count: int) -> list[Program]:
    """Return agents of one kind, with the demo model's texts.

    They share a long system prompt and tools. Their questions, answers and results have many
    lengths.
    """
    draws = Random(seed)
    pieces = [piece for piece in corpus.pieces() if len(piece) > 20]

    def text(low: int, high: int) -> str:
        return " ".join(draws.choices(pieces, k=draws.randint(low, high)))[: 40 * high]

    parameters = {"type": "object", "properties": {"query": {"type": "string"}}}
    tools = [
        {"type": "function",
         "function": {"name": f"tool_{n}", "description": text(1, 8), "parameters": parameters}}
        for n in range(6)
    ]  # fmt: skip
    system = {"role": "system", "content": text(60, 60)}
    programs = []
    for _ in range(count):
        messages: list[dict[str, Any]] = [system]
        program: Program = []
        for _ in range(draws.randint(1, 3)):
            messages.append({"role": "user", "content": text(1, 12)})
            for _ in range(draws.randint(0, 3)):
                program.append({"messages": list(messages), "tools": tools})
                function = {"name": "tool_1", "arguments": '{"query": "Oslo, 14 May"}'}
                messages += [
                    {"role": "assistant", "content": "", "tool_calls": [{"function": function}]},
                    {"role": "tool", "content": text(1, 40)},
                ]
            program.append({"messages": list(messages), "tools": tools})
            messages.append({"role": "assistant", "content": text(1, 10)})
        programs.append(program)
    return programs


@pytest.mark.parametrize("template", [chatml, headed])
def test_on_synthetic_agents(template: Any) -> None:
    calls = tag_programs(agents(7, 40), template, demo_tokens())
    assert len(calls) > 100
    after = calls[WARM_UP:]
    assert mean([call.roles for call in after]) >= 0.95
    assert mean([call.wire for call in after]) >= 0.95
    # Counting characters does not reach the goal.
    assert mean([call.plain for call in after]) < 0.95


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the public data sets are not beside the checkout")
@pytest.mark.parametrize("name", ["tau_airline", "bfcl", "miniswe", "magagent"])
def test_on_real_agents(name: str) -> None:
    calls = tag_programs(dialogues(DATA)[name][:12], chatml, demo_tokens())
    after = calls[WARM_UP:]
    assert mean([call.roles for call in after]) >= 0.95
    assert mean([call.wire for call in after]) >= 0.95


def test_tags_are_compared_with_the_truth_block_by_block() -> None:
    """The tokenizer has one token per character, and the first message has forty blocks."""
    tokens = counting(len)
    messages = [{"role": "user", "content": "x" * 640}, {"role": "tool", "content": "y" * 640}]
    counter = TokenCounter()
    first = tag_call(counter, {"messages": messages}, chatml, tokens)
    assert first.messages == 2
    assert first.blocks == first.prompt_tokens // 16
    assert first.tokens_off < -600
    assert first.roles < 0.8
    again = tag_call(counter, {"messages": messages}, chatml, tokens)
    assert again.tokens_off == 0
    assert again.roles == again.wire >= 0.9


def test_a_prompt_without_a_full_block_has_none_wrong() -> None:
    call = tag_call(TokenCounter(), {"messages": [{"role": "user"}]}, chatml, counting(lambda _: 1))
    assert (call.blocks, call.roles, call.wire) == (0, 1.0, 1.0)
