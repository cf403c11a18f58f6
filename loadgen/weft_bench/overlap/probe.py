"""Measures how fast an idle machine serves an agent's requests.

The times of tools and the rate of requests derive from these figures.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from weft_bench.costs.fit import nonnegative
from weft_bench.drive.client import Client, Refused
from weft_bench.drive.gateway import CHAT, served
from weft_bench.overlap.prompts import ReadyTurn, tools, words
from weft_bench.overlap.shape import LARGEST_PROMPT
from weft_bench.stats import percentile

# Sizes of timed prompts in median prompts, and repetitions of each.
_SIZES: Final = (0.5, 1.0, 1.5)
_TIMES: Final = 3
_SAMPLE_WORDS: Final = 600
# Lengths of a short and a long answer. Their difference is decoding only.
_ANSWERS: Final = (16, 144)


class ProbeError(RuntimeError):
    """The engine did not do what a probe required. The message gives the cause."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The measured machine.

    model: its name. context: tokens. unit: tokens of a median prompt. words_a_token: in running
    text. linear_s, square_s: seconds of a prefill per token and per squared token. token_s: seconds
    per decoded token without a grammar.
    """

    model: str
    context: int
    unit: int
    words_a_token: float
    linear_s: float
    square_s: float
    token_s: float

    def prefill_s(self, tokens: float) -> float:
        """Return the seconds to compute a prompt without cached tokens."""
        return self.linear_s * tokens + self.square_s * tokens * tokens

    @property
    def unit_words(self) -> float:
        """Words of a median prompt."""
        return self.unit * self.words_a_token


class Probe:
    """Measures through a gateway. Raises ProbeError, and OSError without an answer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._texts = 0

    async def machine(self, reserve: int) -> Machine:
        """Measure. reserve: tokens of the context that prompts must not use."""
        model, context = await served(self._client)
        unit = int((context - reserve) / LARGEST_PROMPT)
        if unit < 1:
            raise ProbeError(f"a context of {context} tokens is too short: {reserve} are reserved")
        tokens, _ = await self._prefill(model, _SAMPLE_WORDS)
        bare, _ = await self._prefill(model, 1)
        ratio = (_SAMPLE_WORDS - 1) / max(1, tokens - bare)
        points = []
        for size in _SIZES:
            found = [await self._prefill(model, int(size * unit * ratio)) for _ in range(_TIMES)]
            points.append((found[0][0], percentile([s for _, s in found], 0.5)))
        linear_s, square_s = fit(points)
        spent = []
        for count in _ANSWERS:
            found_s = [await self._decode(model, count) for _ in range(_TIMES)]
            spent.append(percentile(found_s, 0.5))
        token_s = max(0.0, spent[1] - spent[0]) / (_ANSWERS[1] - _ANSWERS[0])
        return Machine(model, context, unit, ratio, linear_s, square_s, token_s)

    async def answer(self, model: str, turn: ReadyTurn) -> tuple[int, float]:
        """Return the tokens of a forced answer and the seconds to decode it.

        The engine compiles the answer's grammar here, before the rows start.
        """
        body = {**forced(model, turn.answer), "messages": [{"role": "user", "content": "Begin."}]}
        await self._post({**body, "max_tokens": 1})
        begun = time.monotonic()
        answer = await self._post(body)
        spent_s = time.monotonic() - begun
        if answer["choices"][0]["message"]["content"] != turn.answer:
            raise ProbeError("the engine's answer differs from the forced calls")
        return int(answer["usage"]["completion_tokens"]), spent_s

    async def _prefill(self, model: str, count: int) -> tuple[int, float]:
        """Return the prompt tokens and seconds of a new prompt."""
        self._texts += 1
        text = words(f"probe/{time.monotonic_ns()}/{self._texts}", count)
        begun = time.monotonic()
        answer = await self._post(
            {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 1}
        )
        return int(answer["usage"]["prompt_tokens"]), time.monotonic() - begun

    async def _decode(self, model: str, count: int) -> float:
        begun = time.monotonic()
        messages = [{"role": "user", "content": "Begin."}]
        await self._post(
            {"model": model, "messages": messages, "max_tokens": count, "ignore_eos": True}
        )
        return time.monotonic() - begun

    async def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._client.post(CHAT, {**body, "temperature": 0})
        try:
            found: dict[str, Any] = answer.json()
        except Refused as error:
            raise ProbeError(f"the engine refused a probe: {error}") from None
        return found


def forced(model: str, text: str) -> dict[str, Any]:
    """Return the fields of a chat completion that force the model to generate exactly `text`."""
    return {
        "model": model,
        "tools": tools(),
        # The calls are text, as if a prompt had asked the model for a JSON array.
        "tool_choice": "none",
        "structured_outputs": {"choice": [text]},
        # A token has at least one character. The grammar ends the answer.
        "max_tokens": len(text) + 1,
        "temperature": 0,
    }


def fit(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return (a, b) of seconds = a * tokens + b * tokens^2 by least squares, neither below 0.

    A longer prompt is thus never faster. points: at least two lengths with their seconds.
    """
    linear, square = nonnegative([(n, n * n) for n, _ in points], [s for _, s in points])
    return linear, square
