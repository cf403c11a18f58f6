"""Prompts with placeholders."""

from __future__ import annotations

from weft_run.plan.prompts import Chat, Slot, cut, estimate_tokens


def test_messages_render_with_the_markup_between_them() -> None:
    slot = Slot("q", 3)
    prompt = Chat("<{role}>", "</>").render([("system", ["Be"]), ("user", ["Q: ", slot, "?"])])
    assert prompt == ("<system>Be</><user>Q: ", slot, "?</><assistant>")


def test_neighbouring_texts_are_one_run() -> None:
    assert Chat("", "").render([("user", ["a", "b"]), ("user", ["c"])]) == ("abc",)


def test_lengths_are_estimated_and_cut_at_blocks() -> None:
    assert len(estimate_tokens("nine char")) == 3
    assert cut(35, 16) == 32
