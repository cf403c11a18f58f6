"""Where each section of a prompt ends, in tokens, without a tokenizer. No I/O.

Three sources, the best first:

1. Exact: what an engine counted for a prompt is where these very sections end in any later prompt
   that begins with them, as each next call of a thread does.
2. Learned per section: the same text comes back in other prompts. What an engine counted beyond
   our count is shared out over the sections in proportion to how uncertain each was; a long system
   prompt takes nearly all of it, and is known after its first call.
3. Tokens per byte of this model's prompts, for what is new.

Keyed by hashes: no text is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from weft_gateway.model.record import record
from weft_gateway.policies.tags_sections import Section

# Before any engine has counted: tokens per byte, as counted over so many bytes.
_PRIOR_RATE: Final = 0.25
_PRIOR_BYTES: Final = 1000.0
# Earlier counts lose this share of their weight with each new one.
_FADE: Final = 0.02
# Text that is shorter says little about the rate.
_LEAST_BYTES: Final = 64
# Tokens of a section's markup, and of a tool or a tool call in it.
_MARKUP: Final = 4.0
_EXTRA: Final = 14.0
# Standard deviation of an estimate, as a share of its tokens.
_SPREAD: Final = 0.08
# What templates write after the last message, so that the model answers: 0 to 5 tokens.
GENERATION_PROMPT: Final = 3.0
_MEDIA_TOKENS: Final = 600.0
# How far a tool's markup strays from the fit, tokens.
_EXTRA_SPREAD: Final = 6.0
# What is uncertain of any count: tokens that merge over borders, markup. Tokens, squared.
_NOISE: Final = 4.0
# An error of so many standard deviations is none of ours: the prompt was another.
_IMPOSSIBLE: Final = 6.0
_MAX_MODELS: Final = 64
_GENERATION: Final = 16_384

_V = TypeVar("_V")


class Recent(Generic[_V]):
    """A bounded map that forgets what was not asked for lately: two generations, the older of which
    goes when the younger is full. At most 2 * `generation` entries; every operation is O(1)."""

    __slots__ = ("_generation", "_old", "_young")

    def __init__(self, generation: int) -> None:
        self._generation = generation
        self._young: dict[int, _V] = {}
        self._old: dict[int, _V] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: int) -> _V | None:
        """The value, None where it is not known."""
        found = self._young.get(key)
        if found is None and (found := self._old.pop(key, None)) is not None:
            self.put(key, found)
        return found

    def put(self, key: int, value: _V) -> None:
        """Keep a value."""
        if len(self._young) >= self._generation:
            self._young, self._old = {}, self._young
        self._young[key] = value

    def drop(self, key: int) -> None:
        """Forget a value."""
        self._young.pop(key, None)
        self._old.pop(key, None)


@record
class Counted:
    """A prompt, counted. ends: the token before which each section ends, never falling. model, and
    the rest, are for learning: the chain of hashes at the prompt's end and at the last exact end,
    that end, the sections since then as (key, tokens, variance), and the bytes and the tokens of
    those that were new, 0 if their rate is not to be learned.
    """

    ends: list[float]
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
    """Tokens per byte of one model's text, a mean in which earlier counts fade."""

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
    """Counts prompts, and learns from what engines count; per model. At most 64 models and 65,536
    remembered numbers, about 8 MB. For one event loop."""

    def __init__(self) -> None:
        self._rates: dict[str, _Rate] = {}
        self._sections = Recent[tuple[float, float]](_GENERATION)
        self._exact = Recent[float](_GENERATION)

    def count(self, model: str, sections: Sequence[Section]) -> Counted:
        """Where the sections of a prompt end. The time is linear in their number, and limited in
        their length."""
        rate = self._rate(model).value
        get, exact = self._sections.get, self._exact.get
        seed = chain = hash(model)
        ends: list[float] = []
        end = start = new_tokens = 0.0
        new_bytes = 0
        origin = seed
        since: list[tuple[int, float, float]] = []
        media = False
        for section in sections:
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
                    mean += _MEDIA_TOKENS * section.media
                    doubt += (_MEDIA_TOKENS * section.media) ** 2
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
                media = False
            ends.append(end)
        if media:
            # Tokens of a picture would count as tokens of its text.
            new_bytes = 0
        return Counted(ends, model, chain, origin, start, since, new_bytes, new_tokens)

    def learn(self, counted: Counted, prompt_tokens: int) -> None:
        """Take in what an engine counted for a prompt. Nothing, or no sections: ignored."""
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
        elif -error <= end / 2:  # Else the engine had not all of the prompt.
            self._rate(counted.model).learn(counted.new_bytes, counted.new_tokens + error)
        if impossible:
            if -error > end / 2:
                # The engine had not all of what we read. What was thought of it is forgotten.
                for key, _, _ in since:
                    self._sections.drop(key)
                since = []
            # Some estimate was too certain, and it is not known which.
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
    """What was thought to end beyond an exact end ends there."""
    number = len(ends) - 1
    while number >= 0 and ends[number] > limit:
        ends[number] = limit
        number -= 1
