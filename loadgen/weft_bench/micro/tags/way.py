"""Runs the gateway's tagging on dialogues and compares it with the true tags."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from time import thread_time

from weft_engine.tags import Tag, TagSpans
from weft_gateway.engine.tokens import TokenCounter
from weft_gateway.policies.tags import BEYOND, by_role, wire_tags
from weft_gateway.policies.tags_sections import Section, sections

from weft_bench.micro.tags.dialogues import Body, Program
from weft_bench.micro.tags.truth import Template, Tokens, reached, spans

BLOCK = 16


@dataclass(frozen=True, slots=True)
class Tagged:
    """One call.

    messages, prompt_tokens, blocks: size; only full blocks count. roles, wire: share of blocks with
    the right tag, for roles and for the tags sent to the engine. plain: as roles, with four
    characters per token. tokens_off: counted prompt tokens minus the true ones. count_s: seconds
    from the parsed body to the tags. learn_s: seconds to learn from the usage.
    """

    messages: int
    prompt_tokens: int
    blocks: int
    roles: float
    wire: float
    plain: float
    tokens_off: int
    count_s: float
    learn_s: float


def tag_programs(
    programs: Iterable[Program], template: Template, tokens: Tokens, model: str = "model"
) -> list[Tagged]:
    """Tag all calls in order and learn from each, starting without knowledge."""
    counter = TokenCounter()
    return [
        tag_call(counter, body, template, tokens, model) for program in programs for body in program
    ]


def tag_call(
    counter: TokenCounter, body: Body, template: Template, tokens: Tokens, model: str = "model"
) -> Tagged:
    """Tag one call and learn from it."""
    begun = thread_time()
    found = sections(body)
    counted = counter.count(model, found)
    sent, _ = wire_tags(found, counted.ends)
    count_s = thread_time() - begun
    true = spans(template(body), tokens)
    prompt = true[-1][0]
    begun = thread_time()
    counter.learn(counted, prompt)
    learn_s = thread_time() - begun
    blocks = prompt // BLOCK
    plain = list(accumulate(len(section.text) / 4 for section in found))
    return Tagged(
        messages=len(body["messages"]),
        prompt_tokens=prompt,
        blocks=blocks,
        roles=_share(_by_role(found, counted.ends), _spans(true), prompt, blocks),
        wire=_share(TagSpans.parse(list(sent)), _spans(reached(true)), prompt, blocks),
        plain=_share(_by_role(found, plain), _spans(true), prompt, blocks),
        tokens_off=counted.tokens - prompt,
        count_s=count_s,
        learn_s=learn_s,
    )


def _by_role(found: list[Section], ends: list[float]) -> TagSpans:
    """Return the tags by role. The last section extends to the prompt's end."""
    return _spans(by_role(found, [*ends[:-1], BEYOND]))


def _spans(pairs: Iterable[tuple[int, int]]) -> TagSpans:
    ends: list[int] = []
    tags: list[Tag] = []
    for end, tag in pairs:
        if not ends or end > ends[-1]:
            ends.append(end)
            tags.append(Tag(tag))
    return TagSpans(tuple(ends), tuple(tags))


def _share(guess: TagSpans, truth: TagSpans, prompt: int, blocks: int) -> float:
    """Return the share of the prompt's full blocks with the right tag."""
    if not blocks:
        return 1.0
    ours = guess.within(prompt).of_blocks(blocks, BLOCK)
    theirs = truth.of_blocks(blocks, BLOCK)
    return sum(a is b for a, b in zip(ours, theirs, strict=True)) / blocks
