"""The gateway's tagging run over dialogues as its calls run it, beside what is true."""

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
    """One call. messages, prompt_tokens, blocks (full ones): how large it was. roles, wire: share
    of its blocks with the right tag, for the roles as they are and for what the engine is sent.
    plain: as roles, had every four characters been a token.
    tokens_off: our count of the prompt's tokens, less the true one. count_s: seconds from the
    parsed body to the tags; learn_s: to take in the usage."""

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
    """Tag every call in its order, and learn from each; nothing is known at first."""
    counter = TokenCounter()
    return [
        tag_call(counter, body, template, tokens, model) for program in programs for body in program
    ]


def tag_call(
    counter: TokenCounter, body: Body, template: Template, tokens: Tokens, model: str = "model"
) -> Tagged:
    """Tag one call, and learn from it."""
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
    """By role, the last section as long as the prompt is."""
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
    """Share of the prompt's full blocks that have the tag that they should have."""
    if not blocks:
        return 1.0
    ours = guess.within(prompt).of_blocks(blocks, BLOCK)
    theirs = truth.of_blocks(blocks, BLOCK)
    return sum(a is b for a, b in zip(ours, theirs, strict=True)) / blocks
