"""At least 95 of 100 blocks get the tag of a full tokenisation, without a tokenizer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from itertools import accumulate
from random import Random
from typing import Any

import pytest
from weft_deploy.local.demo import corpus, tokenizer
from weft_deploy.local.demo_model import VOCABULARY
from weft_engine.tags import Tag, TagSpans
from weft_gateway.engine.tokens import TokenCounter
from weft_gateway.policies.tags import BEYOND, wire_tags
from weft_gateway.policies.tags_sections import sections

Body = dict[str, Any]
# A piece of a prompt: its tag in the engine's numbers, and its text.
Piece = tuple[int, str]
RESPONSE, TOOL_OUTPUT, USER_QUERY, SYSTEM_PROMPT = 1, 2, 3, 4
TAGS = {"assistant": RESPONSE, "tool": TOOL_OUTPUT, "user": USER_QUERY}
CONTROL = re.compile(r"<\|\w+\|>")
BLOCK = 16
# Calls from which the counter learns first.
WARM_UP = 20


def chatml(body: Body) -> list[Piece]:
    """Render like the demo model's template: tools as JSON lines in the system message."""
    system, *messages = body["messages"]
    lines = "".join(f"{json.dumps(tool)}\n" for tool in body["tools"])
    pieces = [
        (SYSTEM_PROMPT, f"<|im_start|>system\n{system['content']}\n{lines}</tools><|im_end|>\n")
    ]
    for message in messages:
        text = message["content"]
        for call in message.get("tool_calls", ()):
            text += f"<tool_call>\n{json.dumps(call['function'])}\n</tool_call>"
        pieces.append((TAGS[message["role"]], f"<|im_start|>{message['role']}\n{text}<|im_end|>\n"))
    return [*pieces, (pieces[-1][0], "<|im_start|>assistant\n")]


def headed(body: Body) -> list[Piece]:
    """Render like Llama's template: indented tools before the system prompt, a header each."""
    system, *messages = body["messages"]
    tools = "".join(f"{json.dumps(tool, indent=4)}\n\n" for tool in body["tools"])
    pieces = [
        (SYSTEM_PROMPT, f"<|begin|><|header|>system<|end|>\n\n{tools}{system['content']}<|end|>")
    ]
    for message in messages:
        text = message["content"]
        for call in message.get("tool_calls", ()):
            text += json.dumps({"name": call["function"]["name"], "parameters": {}})
        pieces.append(
            (TAGS[message["role"]], f"<|header|>{message['role']}<|end|>\n\n{text}<|end|>")
        )
    return [*pieces, (pieces[-1][0], "<|header|>assistant<|end|>\n\n")]


@cache
def tokens() -> Callable[[str], int]:
    """Return a counter of the demo model's tokens. A control token is one token."""
    encode = tokenizer.train(corpus.pieces(), VOCABULARY).encode

    @lru_cache(maxsize=1 << 16)
    def count(text: str) -> int:
        plain = sum(len(encode(part).ids) for part in CONTROL.split(text) if part)
        return plain + len(CONTROL.findall(text))

    return count


def agents(seed: int, count: int) -> list[Body]:
    """Return the calls of agents of one kind, one agent after another.

    They share a long system prompt and tools. Their questions, answers and results have many
    lengths.
    """
    draws = Random(seed)
    pieces = [piece for piece in corpus.pieces() if len(piece) > 20]

    def text(low: int, high: int) -> str:
        return " ".join(draws.choices(pieces, k=draws.randint(low, high)))[: 40 * high]

    def tool(number: int) -> Body:
        query = {"type": "object", "properties": {"query": {"type": "string"}}}
        function = {"name": f"tool_{number}", "description": text(1, 8), "parameters": query}
        return {"type": "function", "function": function}

    tools, system = [tool(number) for number in range(6)], text(60, 60)
    calls = []
    for _ in range(count):
        messages: list[Body] = [{"role": "system", "content": system}]
        for _ in range(draws.randint(1, 3)):
            messages.append({"role": "user", "content": text(1, 12)})
            for _ in range(draws.randint(0, 3)):
                calls.append({"messages": list(messages), "tools": tools})
                function = {"name": "tool_1", "arguments": '{"query": "Oslo, 14 May"}'}
                messages += [
                    {"role": "assistant", "content": "", "tool_calls": [{"function": function}]},
                    {"role": "tool", "content": text(1, 40)},
                ]
            calls.append({"messages": list(messages), "tools": tools})
            messages.append({"role": "assistant", "content": text(1, 10)})
    return calls


def spans(pairs: Iterable[tuple[float, int]]) -> TagSpans:
    ends: list[int] = []
    tags: list[Tag] = []
    for end, tag in pairs:
        if not ends or end > ends[-1]:
            ends.append(round(end))
            tags.append(Tag(tag))
    return TagSpans(tuple(ends), tuple(tags))


def reached(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans with the highest tag of themselves and all later ones: a prefix cache finds no
    block behind a gap.
    """
    highest = list(accumulate((tag for _, tag in reversed(found)), max))[::-1]
    return [(end, tag) for (end, _), tag in zip(found, highest, strict=True)]


def share(guess: TagSpans, truth: TagSpans, prompt: int) -> float:
    """Return the share of the prompt's full blocks with the right tag."""
    blocks = prompt // BLOCK
    ours, theirs = guess.within(prompt).of_blocks(blocks, BLOCK), truth.of_blocks(blocks, BLOCK)
    return sum(a is b for a, b in zip(ours, theirs, strict=True)) / blocks


@pytest.mark.parametrize("template", [chatml, headed])
def test_blocks_get_the_tags_of_a_full_tokenisation(
    template: Callable[[Body], list[Piece]],
) -> None:
    counter, shares = TokenCounter(), []
    for body in agents(7, 40):
        found = sections(body)
        counted = counter.count("model", found)
        sent, _ = wire_tags(found, counted.ends)
        pieces = template(body)
        ends = accumulate(tokens()(text) for _, text in pieces)
        truth = [(end, tag) for end, (tag, _) in zip(ends, pieces, strict=True)]
        prompt = truth[-1][0]
        counter.learn(counted, prompt)
        characters = list(accumulate(len(section.text) / 4 for section in found))
        roles = [section.tag for section in found]
        by_roles = zip([*counted.ends[:-1], BEYOND], roles, strict=True)
        by_characters = zip([*characters[:-1], BEYOND], roles, strict=True)
        shares.append(
            (
                share(
                    spans(by_roles),
                    spans(truth),
                    prompt,
                ),
                share(TagSpans.parse(list(sent)), spans(reached(truth)), prompt),
                share(spans(by_characters), spans(truth), prompt),
            )
        )
    assert len(shares) > 100
    with_roles, on_the_wire, with_characters = (
        sum(each) / len(each) for each in zip(*shares[WARM_UP:], strict=True)
    )
    assert with_roles >= 0.95
    assert on_the_wire >= 0.95
    # Counting four characters a token does not reach the goal.
    assert with_characters < 0.95
