"""Ends of sections, learned from what engines count."""

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
    """A small tokenizer, and a template that adds six tokens a message."""
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


def tell(counter: TokenCounter, found: list[Section], model: str = "m") -> None:
    counter.learn(counter.count(model, found), int(true_ends(found)[-1] + GENERATION_PROMPT))


SYSTEM = ("system", text(1, 900))


def test_a_prompt_that_came_before_is_known_exactly() -> None:
    counter = TokenCounter()
    found = chat(SYSTEM, ("user", text(2, 80)))
    tell(counter, found)
    longer = [*found, *chat(("assistant", text(3, 40)))]
    counted = counter.count("m", longer)
    assert counted.ends[1] == true_ends(found)[-1]
    assert counter.count("m", found).tokens == true_ends(found)[-1] + GENERATION_PROMPT


def test_a_shared_system_prompt_is_known_after_one_call() -> None:
    counter = TokenCounter()
    first = chat(SYSTEM, ("user", text(2, 30)))
    before = abs(counter.count("m", first).ends[0] - true_tokens(first[0]))
    assert before > 100
    tell(counter, first)
    other = chat(SYSTEM, ("user", text(4, 30)))
    assert abs(counter.count("m", other).ends[0] - true_tokens(other[0])) < 32
    for seed in range(5, 25):
        tell(counter, chat(SYSTEM, ("user", text(seed, 30))))
    # Within a block.
    assert abs(counter.count("m", other).ends[0] - true_tokens(other[0])) < 16


def test_within_a_thread_only_what_is_new_is_estimated() -> None:
    counter = TokenCounter()
    messages = [SYSTEM]
    for seed in range(2, 40):
        role = ("user", "assistant", "tool")[seed % 3]
        messages.append((role, text(seed, 10 + 7 * (seed % 5))))
        found = chat(*messages)
        counted = counter.count("m", found)
        tell(counter, found)
        assert len(counted.since) <= 2
    ends, true = counter.count("m", chat(*messages)).ends, true_ends(chat(*messages))
    # Each later end was exact once; the first lies inside the first prompt.
    assert ends[1:] == pytest.approx(true[1:], abs=6)
    assert ends[0] == pytest.approx(true[0], abs=32)


def test_ends_never_fall_and_stay_below_an_exact_end() -> None:
    counter = TokenCounter()
    found = chat(("user", text(1, 300)), ("assistant", text(2, 300)))
    # Far fewer than anybody would think, and nothing else is remembered of them.
    counter.learn(counter.count("m", found), 20)
    counter._sections, counter._fits = Recent(10), {}
    counted = counter.count("m", [*found, *chat(("user", "and"))])
    assert counted.ends == sorted(counted.ends)
    assert counted.ends[0] <= counted.ends[1] == 17.0


def test_an_exact_end_that_turns_out_wrong_is_forgotten() -> None:
    counter = TokenCounter()
    found = chat(SYSTEM, ("user", text(2, 80)))
    # This prompt was cut.
    counter.learn(counter.count("m", found), 100)
    longer = [*found, *chat(("assistant", text(3, 40)))]
    assert counter.count("m", longer).ends[1] < 100
    tell(counter, longer)
    more = [*longer, *chat(("user", "and now?"))]
    counted = counter.count("m", more)
    assert counted.ends[2] == true_ends(longer)[-1]
    assert counted.start == counted.ends[2]
    assert counter.count("m", found).start == 0


def test_a_count_of_another_prompt_does_not_stay_with_its_sections() -> None:
    """As where a client has its prompt cut: others have the same system prompt."""
    counter = TokenCounter()
    for seed in range(2, 8):
        tell(counter, chat(SYSTEM, ("user", text(seed, 30))))
    other = chat(SYSTEM, ("user", text(20, 30)))
    before = counter.count("m", other).ends[0]
    for cut in (10, 900, 5000):
        counter.learn(counter.count("m", chat(SYSTEM, ("user", f"cut at {cut}"))), cut)
        for seed in range(3):
            tell(counter, chat(SYSTEM, ("user", text(30 + cut + seed, 30))))
        assert counter.count("m", other).ends[0] == pytest.approx(before, rel=0.02), cut


def test_models_do_not_share_what_they_learn() -> None:
    counter = TokenCounter()
    found = chat(SYSTEM, ("user", text(2, 80)))
    before = counter.count("b", found).ends
    tell(counter, found, "a")
    assert counter.count("b", found).ends == before


def test_images_are_known_from_their_second_call_on() -> None:
    counter = TokenCounter()
    image = {"type": "image_url", "image_url": {"url": "data:..."}}
    body = {"messages": [{"role": "user", "content": [image, {"type": "text", "text": "What?"}]}]}
    found = sections(body)
    fit = counter.count("m", chat(SYSTEM)).ends
    counter.learn(counter.count("m", found), 2500)
    assert counter.count("m", found).tokens == 2500
    # The words of other prompts are not thought to be longer for it.
    assert counter.count("m", chat(SYSTEM)).ends == pytest.approx(fit, rel=0.02)


@pytest.mark.parametrize("tokens", [0, -1])
def test_a_report_without_tokens_teaches_nothing(tokens: int) -> None:
    counter = TokenCounter()
    found = chat(SYSTEM)
    before = counter.count("m", found).ends
    counter.learn(counter.count("m", found), tokens)
    assert counter.count("m", found).ends == before
    counter.learn(counter.count("m", []), 5)
    assert counter.count("m", []).tokens == 1


def test_the_rate_of_a_vocabulary_is_learned() -> None:
    """Of a vocabulary whose tokens have two bytes, also where the first guess is far off."""
    counter = TokenCounter()
    for number in range(50):
        text = f"{number} " + "x" * 2000
        counter.learn(counter.count("m", chat(("user", text))), len(text) // 2)
    assert counter.count("m", chat(("user", "y" * 4000))).tokens == pytest.approx(2000, rel=0.1)


def test_memory_is_bounded() -> None:
    counter = TokenCounter()
    counter._sections, counter._exact = Recent(50), Recent(50)
    for number in range(400):
        found = chat(("user", f"question {number}"), ("assistant", f"answer {number}"))
        counter.learn(counter.count(f"model {number}", found), 30)
    assert len(counter._sections) <= 100
    assert len(counter._exact) <= 100
    assert len(counter._rates) == 64


def test_what_is_asked_for_is_not_forgotten() -> None:
    kept: Recent[int] = Recent(4)
    kept.put(0, 7)
    for number in range(1, 100):
        kept.put(number, number)
        assert kept.get(0) == 7
    assert kept.get(1) is None
    kept.drop(0)
    assert kept.get(0) is None


def test_pictures_teach_the_fit_nothing() -> None:
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
