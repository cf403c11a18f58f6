"""Where each section of a prompt ends, in tokens, without a tokenizer. No I/O.

Three sources, the best first:

1. Exact: what an engine counted for a prompt is where these very sections end in any later prompt
   that begins with them, as each next call of a thread does.
2. Learned per section: the same text comes back in other prompts. What an engine counted beyond
   our count is shared out over the sections in proportion to how uncertain each was; a long system
   prompt takes nearly all of it, and is known after its first call.
3. A fit over the characters (`tokens_fit`), for what is new.

Keyed by hashes: no text is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from weft_gateway.engine.tokens_fit import SPREAD, Estimates, TokenFit
from weft_gateway.model.record import record
from weft_gateway.policies.tags_sections import Section

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
    that end, the sections since then as (key, tokens, variance), and those of them that were new:
    from which on of all that were estimated, and how many tokens they were thought to be.
    estimates: None where the fit has nothing to learn.
    """

    ends: list[float]
    model: str
    chain: int
    origin: int
    start: float
    since: list[tuple[int, float, float]]
    estimates: Estimates | None
    first_new: int
    new_tokens: float

    @property
    def tokens(self) -> int:
        """Tokens of the whole prompt, at least 1."""
        return max(1, round(self.ends[-1] + GENERATION_PROMPT)) if self.ends else 1


class TokenCounter:
    """Counts prompts, and learns from what engines count; per model. At most 64 models and 65,536
    remembered numbers, about 8 MB. For one event loop."""

    def __init__(self) -> None:
        self._fits: dict[str, TokenFit] = {}
        self._sections = Recent[tuple[float, float]](_GENERATION)
        self._exact = Recent[float](_GENERATION)

    def count(self, model: str, sections: Sequence[Section]) -> Counted:
        """Where the sections of a prompt end. The time is linear in their number, and limited in
        their length."""
        fit = self._fits.get(model) or self._fit(model)
        get, exact = self._sections.get, self._exact.get
        seed = chain = hash(model)
        steps: list[tuple[int, int, float | None, tuple[float, float] | None]] = []
        unknown: list[Section] = []
        for section in sections:
            key = section.key ^ seed
            chain = hash((chain, key))
            known = get(key)
            if known is None:
                unknown.append(section)
            steps.append((key, chain, exact(chain), known))
        estimates = fit.estimates(unknown) if unknown else None
        fresh = iter(estimates.tokens) if estimates is not None else iter(())
        number = first_new = 0
        ends: list[float] = []
        end = start = new_tokens = 0.0
        origin = seed
        since: list[tuple[int, float, float]] = []
        media = False
        for section, (key, link, at, known) in zip(sections, steps, strict=True):
            if known is None:
                mean = next(fresh)
                number += 1
                new_tokens += mean
                spread = SPREAD * mean + _EXTRA_SPREAD * section.extras
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
                origin = link
                since.clear()
                first_new, new_tokens = number, 0.0
                media = False
            ends.append(end)
        if media:
            # What a picture makes would be taken for what its text makes.
            estimates = None
        return Counted(ends, model, chain, origin, start, since, estimates, first_new, new_tokens)

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
        elif counted.estimates is not None and counted.new_tokens:
            fit = self._fit(counted.model)
            if fit.wants():
                features = counted.estimates.features(counted.first_new)
                fit.learn(features, counted.new_tokens + error, variance)
        if impossible:
            if -error > end / 2:
                # The engine had not all of what we read. What was thought of it is forgotten.
                for key, _, _ in since:
                    self._sections.drop(key)
                since = []
            # We were too sure of something: nobody knows of what.
            since = [(key, mean, (SPREAD * mean) ** 2) for key, mean, _ in since]
            variance = _NOISE + sum([doubt for _, _, doubt in since])
        share = error / variance
        for key, mean, doubt in since:
            better = max(1.0, mean + share * doubt)
            self._sections.put(key, (better, doubt * (1.0 - doubt / variance) + 0.1))
        self._exact.put(counted.chain, end)

    def _fit(self, model: str) -> TokenFit:
        fit = self._fits.get(model)
        if fit is None:
            if len(self._fits) >= _MAX_MODELS:
                del self._fits[next(iter(self._fits))]
            fit = self._fits[model] = TokenFit()
        return fit


def _lower(ends: list[float], limit: float) -> None:
    """What was thought to end beyond an exact end ends there."""
    number = len(ends) - 1
    while number >= 0 and ends[number] > limit:
        ends[number] = limit
        number -= 1
