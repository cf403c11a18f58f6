"""Ends of sections, learned from the engines' token counts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from weft_gateway.engine.tokens import GENERATION_PROMPT, Recent, TokenCounter
from weft_gateway.policies.tags_sections import Section, sections

WORDS = (
    "we",
    "look",
    "at",
    "the weather",
    "in Oslo,",
    "then 14",
    "boats;",
    "each",
    "(one)",
    "Captain",
)


def text(seed: int, words: int) -> str:
    return " ".join(Random(seed).choices(WORDS, k=words))


def true_tokens(section: Section) -> int:
    """Count tokens with a small tokenizer and a template that adds six tokens per message."""
    return 6 + len(section.text) // 3


def true_ends(found: list[Section]) -> list[int]:
    ends, end = [], 0
    for section in found:
        end += true_tokens(section)
        ends.append(end)
    return ends


def chat(*messages: tuple[str, str]) -> list[Section]:
    body: dict[str, Any] = {"messages": [{"role": r, "content": c} for r, c in messages]}
    return sections(body)


def learn_true_tokens(counter: TokenCounter, found: list[Section], model: str = "m") -> None:
    counter.learn(counter.count(model, found), int(true_ends(found)[-1] + GENERATION_PROMPT))


SYSTEM = ("system", text(1, 900))


def test_repeated_prompt_is_counted_exactly() -> None:
    counter = TokenCounter()
    found = chat(SYSTEM, ("user", text(2, 80)))
    learn_true_tokens(counter, found)
    longer = [*found, *chat(("assistant", text(3, 40)))]
    counted = counter.count("m", longer)
    assert counted.ends[1] == true_ends(found)[-1]
    assert counter.count("m", found).tokens == true_ends(found)[-1] + GENERATION_PROMPT


def test_shared_system_prompt_is_known_after_one_call() -> None:
    counter = TokenCounter()
    first = chat(SYSTEM, ("user", text(2, 30)))
    before = abs(counter.count("m", first).ends[0] - true_tokens(first[0]))
    assert before > 100
    learn_true_tokens(counter, first)
    other = chat(SYSTEM, ("user", text(4, 30)))
    assert abs(counter.count("m", other).ends[0] - true_tokens(other[0])) < 32
    for seed in range(5, 25):
        learn_true_tokens(counter, chat(SYSTEM, ("user", text(seed, 30))))
    # Within one block.
    assert abs(counter.count("m", other).ends[0] - true_tokens(other[0])) < 16


def test_only_new_sections_of_a_thread_are_estimated() -> None:
    counter = TokenCounter()
    messages = [SYSTEM]
    for seed in range(2, 40):
        role = ("user", "assistant", "tool")[seed % 3]
        messages.append((role, text(seed, 10 + 7 * (seed % 5))))
        found = chat(*messages)
        counted = counter.count("m", found)
        learn_true_tokens(counter, found)
        assert len(counted.since) <= 2
    ends, true = counter.count("m", chat(*messages)).ends, true_ends(chat(*messages))
    # The engine counted each later end exactly. The first end lies inside the first prompt.
    assert ends[1:] == pytest.approx(true[1:], abs=6)
    assert ends[0] == pytest.approx(true[0], abs=32)


def test_ends_increase_and_stay_below_an_exact_end() -> None:
    counter = TokenCounter()
    found = chat(("user", text(1, 300)), ("assistant", text(2, 300)))
    # Far below any estimate, and the only count of these sections.
    counter.learn(counter.count("m", found), 20)
    counter._sections, counter._fits = Recent(10), {}
    counted = counter.count("m", [*found, *chat(("user", "and"))])
    assert counted.ends == sorted(counted.ends)
    assert counted.ends[0] <= counted.ends[1] == 17.0


def test_wrong_exact_end_is_forgotten() -> None:
    counter = TokenCounter()
    found = chat(SYSTEM, ("user", text(2, 80)))
    # This prompt was truncated.
    counter.learn(counter.count("m", found), 100)
    longer = [*found, *chat(("assistant", text(3, 40)))]
    assert counter.count("m", longer).ends[1] < 100
    learn_true_tokens(counter, longer)
    more = [*longer, *chat(("user", "and now?"))]
    counted = counter.count("m", more)
    assert counted.ends[2] == true_ends(longer)[-1]
    assert counted.start == counted.ends[2]
    assert counter.count("m", found).start == 0


def test_count_of_a_truncated_prompt_does_not_affect_its_sections() -> None:
    """A client may have its prompt truncated while others share its system prompt."""
    counter = TokenCounter()
    for seed in range(2, 8):
        learn_true_tokens(counter, chat(SYSTEM, ("user", text(seed, 30))))
    other = chat(SYSTEM, ("user", text(20, 30)))
    before = counter.count("m", other).ends[0]
    for cut in (10, 900, 5000):
        counter.learn(counter.count("m", chat(SYSTEM, ("user", f"cut at {cut}"))), cut)
        for seed in range(3):
            learn_true_tokens(counter, chat(SYSTEM, ("user", text(30 + cut + seed, 30))))
        assert counter.count("m", other).ends[0] == pytest.approx(before, rel=0.02), cut


def test_models_do_not_share_what_they_learn() -> None:
    counter = TokenCounter()
    found = chat(SYSTEM, ("user", text(2, 80)))
    before = counter.count("b", found).ends
    learn_true_tokens(counter, found, "a")
    assert counter.count("b", found).ends == before


def test_images_are_counted_exactly_from_their_second_call() -> None:
    counter = TokenCounter()
    image = {"type": "image_url", "image_url": {"url": "data:..."}}
    # Long enough to be learned from.
    question = {"type": "text", "text": "What is in this picture? " * 9}
    body = {"messages": [{"role": "user", "content": [image, question]}]}
    found = sections(body)
    fit = counter.count("m", chat(SYSTEM)).ends
    counter.learn(counter.count("m", found), 2500)
    assert counter.count("m", found).tokens == 2500
    # The estimate for the words of other prompts does not grow.
    assert counter.count("m", chat(SYSTEM)).ends == pytest.approx(fit, rel=0.02)


@pytest.mark.parametrize("tokens", [0, -1])
def test_report_without_tokens_changes_nothing(tokens: int) -> None:
    counter = TokenCounter()
    found = chat(SYSTEM)
    before = counter.count("m", found).ends
    counter.learn(counter.count("m", found), tokens)
    assert counter.count("m", found).ends == before
    counter.learn(counter.count("m", []), 5)
    assert counter.count("m", []).tokens == 1


def test_bytes_per_token_of_a_vocabulary_are_learned() -> None:
    """The tokens of this vocabulary have two bytes, far from the first estimate."""
    counter = TokenCounter()
    for number in range(50):
        text = f"{number} " + "x" * 2000
        counter.learn(counter.count("m", chat(("user", text))), len(text) // 2)
    assert counter.count("m", chat(("user", "y" * 4000))).tokens == pytest.approx(2000, rel=0.1)


def test_images_do_not_change_the_fit() -> None:
    counter, untaught = TokenCounter(), TokenCounter()
    found = chat(("user", text(60, 400)))
    for number in range(20):
        content = [
            {"type": "text", "text": text(100 + number, 400)},
            {"type": "image_url", "image_url": {"url": f"https://pictures/{number}"}},
        ]
        pictures = sections({"messages": [{"role": "user", "content": content}]})
        counter.learn(counter.count("m", pictures), 6_000)
    assert counter.count("m", found).tokens == untaught.count("m", found).tokens
