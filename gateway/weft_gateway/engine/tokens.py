"""Estimates where each section of a prompt ends, in tokens, without a tokenizer. No I/O.

Three sources, best first:

1. Exact: an engine's count of a prompt is where the same sections end in any later prompt that
   begins with them, as the next calls of a thread do.
2. Learned per section: the same text recurs in other prompts. The difference between the engine's
   count and the estimate is distributed over the sections in proportion to their variance. A long
   system prompt takes nearly all of it and is known after its first call.
3. Tokens per byte of the model's prompts, for new text.

Keys are hashes: no text is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from weft_gateway.engine.media import MEDIA_TOKENS
from weft_gateway.model.record import record
from weft_gateway.policies.tags_sections import Section
from weft_gateway.transcripts.transcript import Known

# Prior rate in tokens per byte, and its weight in bytes.
_PRIOR_RATE: Final = 0.25
_PRIOR_BYTES: Final = 1000.0
# Share of their weight that earlier counts lose with each new one.
_FADE: Final = 0.02
# Shorter text gives an unreliable rate.
_LEAST_BYTES: Final = 64
# Tokens of a section's markup, and of a tool or a tool call in it.
_MARKUP: Final = 4.0
_EXTRA: Final = 14.0
# Standard deviation of an estimate, as a share of its tokens.
_SPREAD: Final = 0.08
# Tokens that templates append after the last message to start the model's answer: 0 to 5.
GENERATION_PROMPT: Final = 3.0
# Standard deviation of a tool's markup, in tokens.
_EXTRA_SPREAD: Final = 6.0
# Variance of every count, in tokens squared: tokens that merge across borders, markup.
_NOISE: Final = 4.0
# An error of more standard deviations is no estimation error: the prompt was a different one.
_IMPOSSIBLE: Final = 6.0
_MAX_MODELS: Final = 64
_GENERATION: Final = 16_384

_V = TypeVar("_V")


class Recent(Generic[_V]):
    """A bounded map that drops entries that were not recently read. It has two generations: the
    older one is dropped when the younger is full. At most 2 * `generation` entries; every operation
    is O(1).
    """

    __slots__ = ("_generation", "_old", "_young")

    def __init__(self, generation: int) -> None:
        self._generation = generation
        self._young: dict[int, _V] = {}
        self._old: dict[int, _V] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: int) -> _V | None:
        """Return the value, None if unknown."""
        found = self._young.get(key)
        if found is None and (found := self._old.pop(key, None)) is not None:
            self.put(key, found)
        return found

    def put(self, key: int, value: _V) -> None:
        """Store a value."""
        if len(self._young) >= self._generation:
            self._young, self._old = {}, self._young
        self._young[key] = value

    def drop(self, key: int) -> None:
        """Remove a value."""
        self._young.pop(key, None)
        self._old.pop(key, None)


@record
class Counted:
    """A prompt with estimated section ends.

    ends: end of each section in tokens, non-decreasing; of the known messages, the ends of their
    spans. chains: hash of the prompt up to each end; begun: before the first. The other fields are
    for learning. model: the model. chain: hash of the whole prompt. origin, start: hash and token
    position of the last exact end. since: the sections after it as (key, tokens, variance).
    new_bytes, new_tokens: bytes and estimated tokens of the new sections among them; new_bytes is 0
    if the rate must not be learned.
    """

    ends: list[float]
    chains: list[int]
    begun: int
    model: str
    chain: int
    origin: int
    start: float
    since: list[tuple[int, float, float]]
    new_bytes: int
    new_tokens: float

    @property
    def tokens(self) -> int:
        """Tokens of the whole prompt, at least 1."""
        return max(1, round(self.ends[-1] + GENERATION_PROMPT)) if self.ends else 1


class _Rate:
    """Tokens per byte of one model's text: a mean with fading weights."""

    __slots__ = ("_bytes", "_tokens")

    def __init__(self) -> None:
        self._bytes = _PRIOR_BYTES
        self._tokens = _PRIOR_BYTES * _PRIOR_RATE

    @property
    def value(self) -> float:
        return self._tokens / self._bytes

    def learn(self, size: int, tokens: float) -> None:
        if size >= _LEAST_BYTES and tokens > 0:
            self._bytes += size - _FADE * self._bytes
            self._tokens += tokens - _FADE * self._tokens


class TokenCounter:
    """Estimates prompt tokens and learns from engines' counts, per model. Holds at most 64 models
    and 65,536 values, about 8 MB. For one event loop.
    """

    def __init__(self) -> None:
        self._rates: dict[str, _Rate] = {}
        self._sections = Recent[tuple[float, float]](_GENERATION)
        self._exact = Recent[float](_GENERATION)

    def estimate(self, model: str, text_bytes: int) -> int:
        """Return the estimated tokens of a text that is not read, at least 1."""
        return max(1, round(text_bytes * self._rate(model).value))

    def learn_text(self, model: str, text_bytes: int, tokens: int) -> None:
        """Learn from an engine's count of a prompt without messages. Ignored if the engine received
        only part of it.
        """
        rate = self._rate(model)
        if 2 * tokens > text_bytes * rate.value:
            rate.learn(text_bytes, tokens)

    def count(self, model: str, sections: Sequence[Section | Known]) -> Counted | None:
        """Estimate where the sections of a prompt end. Time is linear in the number of sections and
        bounded in their length. None if the known messages do not continue what is before them.
        """
        rate = self._rate(model).value
        get, exact = self._sections.get, self._exact.get
        seed = chain = hash(model)
        ends: list[float] = []
        chains: list[int] = []
        end = start = new_tokens = 0.0
        new_bytes = 0
        origin = seed
        since: list[tuple[int, float, float]] = []
        media = unlearned = False
        for section in sections:
            if type(section) is Known:
                if section.of.chain != chain:
                    return None
                chain = section.chain
                at = exact(chain)
                end = section.tokens if at is None else at
                reached = [reach for reach, _ in section.spans()]
                chains += [chain] * len(reached)
                ends += reached
                if reached and reached[-1] == section.tokens:
                    ends[-1] = end
                _lower(ends, end)
                origin, start, media = chain, end, False
                # Their error is theirs, and not that of the sections behind them.
                since = [] if at is not None else [(chain, end, (_SPREAD * end) ** 2)]
                new_bytes, new_tokens = 0, 0.0
                unlearned = at is None
                continue
            key = section.key ^ seed
            chain = hash((chain, key))
            at, known = exact(chain), get(key)
            if known is None:
                size = _size(section.text)
                text = size * rate
                mean = max(1.0, _MARKUP + _EXTRA * section.extras + text)
                new_bytes += size
                new_tokens += text
                spread = _SPREAD * mean + _EXTRA_SPREAD * section.extras
                doubt = spread * spread
                if section.media:
                    media = True
                    mean += MEDIA_TOKENS * section.media
                    doubt += (MEDIA_TOKENS * section.media) ** 2
                known = mean, doubt
            end += known[0]
            if at is None:
                since.append((key, *known))
            else:
                _lower(ends, at)
                end = start = at
                origin = chain
                since.clear()
                new_bytes, new_tokens = 0, 0.0
                media = unlearned = False
            ends.append(end)
            chains.append(chain)
        if media or unlearned:
            # Image tokens, or an error of the known messages, would count as text tokens.
            new_bytes = 0
        return Counted(
            ends, chains, seed, model, chain, origin, start, since, new_bytes, new_tokens
        )  # fmt: skip

    def learn(self, counted: Counted, prompt_tokens: int) -> None:
        """Learn from an engine's count of a prompt. Ignored if either is empty."""
        if prompt_tokens <= 0 or not counted.ends:
            return
        end = max(1.0, prompt_tokens - GENERATION_PROMPT)
        since = counted.since
        error = end - counted.ends[-1]
        variance = _NOISE + sum([doubt for _, _, doubt in since])
        impossible = error * error > _IMPOSSIBLE**2 * variance
        if impossible and counted.start:
            self._exact.drop(counted.origin)
            since = []
        elif -error <= end / 2:  # Otherwise the engine received only part of the prompt.
            self._rate(counted.model).learn(counted.new_bytes, counted.new_tokens + error)
        if impossible:
            if -error > end / 2:
                # The engine received only part of the prompt. The estimates of these sections are
                # dropped.
                for key, _, _ in since:
                    self._sections.drop(key)
                since = []
            # An estimate had too small a variance, but which one is unknown.
            since = [(key, mean, (_SPREAD * mean) ** 2) for key, mean, _ in since]
            variance = _NOISE + sum([doubt for _, _, doubt in since])
        share = error / variance
        for key, mean, doubt in since:
            better = max(1.0, mean + share * doubt)
            self._sections.put(key, (better, doubt * (1.0 - doubt / variance) + 0.1))
        self._exact.put(counted.chain, end)

    def _rate(self, model: str) -> _Rate:
        rate = self._rates.get(model)
        if rate is None:
            if len(self._rates) >= _MAX_MODELS:
                del self._rates[next(iter(self._rates))]
            rate = self._rates[model] = _Rate()
        return rate


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _lower(ends: list[float], limit: float) -> None:
    """Lower estimated ends that exceed an exact end."""
    number = len(ends) - 1
    while number >= 0 and ends[number] > limit:
        ends[number] = limit
        number -= 1
