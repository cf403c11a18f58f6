"""How many tokens a text makes: a linear fit over counts of its characters, learned online. Pure.

Byte-pair encodings split text into words, numbers and marks before they merge, so the number of
words is most of the answer, and how long and how common they are the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add, mul
from typing import Final

from weft_gateway.policies.tags_sections import Section

Vector = list[float]

# Lower case, upper case, digits, marks, spaces, line ends, and bytes beyond ASCII.
_CLASSES: Final = bytes(
    ord("a") if 97 <= code <= 122
    else ord("A") if 65 <= code <= 90
    else ord("0") if 48 <= code <= 57
    else ord(" ") if code == 32
    else ord("\n") if code in (9, 10, 13)
    else ord(".") if code < 128
    else ord("x")
    for code in range(256)
)  # fmt: skip

# Tokens each: a section's markup, a tool or tool call, a word, then a character of each class.
# Between what fits a vocabulary of 131,000 tokens and one of 6,000, nearer to the large one.
PRIOR: Final = (4.0, 14.0, 0.75, 0.06, 0.5, 0.8, 0.45, 0.7, 0.5)
_DOUBT: Final = (4.0, 14.0, 0.35, 0.06, 0.3, 0.4, 0.25, 0.7, 0.4)
SIZE: Final = len(PRIOR)
# Text of one kind differs by so much from the fit, as a share of its tokens.
SPREAD: Final = 0.08
# From here on the fit changes slowly, and one observation in some will do.
_SETTLED: Final = 128
_EVERY: Final = 8
_LONG: Final = 1024
_SELDOM: Final = 64
_OUTLIER: Final = 4.0
# So many characters are read of a call's new text, in so many slices of a long one.
_READ: Final = 8192
_LEAST_READ: Final = 256
_SLICES: Final = 16
# So many new sections are read one by one. More come when a gateway has just started.
_ONE_BY_ONE: Final = 24


def features(text: str, extras: int) -> Vector:
    """What the fit goes by, SIZE numbers. About 10 us a thousand characters."""
    count = text.encode("utf-8", "replace").translate(_CLASSES).count
    words = count(b" a") + count(b".a") + count(b"\na")
    return [
        1.0, extras, words, count(b"a"), count(b"A"), count(b"0"), count(b"."), count(b"\n"),
        count(b"x"),
    ]  # fmt: skip


class Estimates:
    """Sections counted by a fit. tokens: of each, at least 1. Their features are kept, for what the
    engine's count will teach."""

    __slots__ = ("_densities", "_sections", "_vectors", "tokens")

    def __init__(self, weights: Vector, sections: Sequence[Section]) -> None:
        """Of much text only samples are read, and of many sections those with one tag are taken
        for alike, so that the time has a limit."""
        self._sections = sections
        self._vectors: list[Vector] = []
        self._densities: dict[int, Vector] = {}
        if len(sections) <= _ONE_BY_ONE:
            size = sum([len(section.text) for section in sections])
            share = min(1.0, _READ / size) if size else 1.0
            self._vectors = [_read(section.text, section.extras, share) for section in sections]
            self.tokens = [max(1.0, sum(map(mul, weights, vector))) for vector in self._vectors]
            return
        each = _READ // len(sections)
        by_tag: dict[int, list[str]] = {}
        for section in sections:
            middle = max(0, len(section.text) - each) // 2
            by_tag.setdefault(section.tag, []).append(section.text[middle : middle + each])
        self._densities = {tag: _density("".join(texts)) for tag, texts in by_tag.items()}
        rates = {tag: sum(map(mul, weights[2:], d)) for tag, d in self._densities.items()}
        markup, extra = weights[:2]
        self.tokens = [
            max(1.0, markup + extra * section.extras + rates[section.tag] * len(section.text))
            for section in sections
        ]

    def features(self, first: int) -> Vector:
        """The features, summed, of the sections from the first-th on."""
        if self._vectors:
            return list(map(sum, zip(*self._vectors[first:], strict=True)))
        summed = [0.0] * SIZE
        for tag, density in self._densities.items():
            alike = [section for section in self._sections[first:] if section.tag == tag]
            size = sum([len(section.text) for section in alike])
            extras = sum([section.extras for section in alike])
            vector = [len(alike), extras, *[size * value for value in density]]
            summed = list(map(add, summed, vector))
        return summed


class TokenFit:
    """Recursive least squares over the weights, from a prior that makes the first call good."""

    __slots__ = ("_covariance", "_seen", "_weights")

    def __init__(self) -> None:
        self._weights: Vector = list(PRIOR)
        self._seen = 0
        self._covariance = [
            [doubt * doubt if row == column else 0.0 for column in range(SIZE)]
            for row, doubt in enumerate(_DOUBT)
        ]

    def estimates(self, sections: Sequence[Section]) -> Estimates:
        """Count sections of which nothing better is known."""
        return Estimates(self._weights, sections)

    def wants(self) -> bool:
        """Whether the next observation is to be learned; the others are not worth their time."""
        self._seen += 1
        seen = self._seen
        return seen <= _SETTLED or not seen % (_EVERY if seen <= _LONG else _SELDOM)

    def learn(self, vector: Vector, tokens: float, variance: float) -> None:
        """Take in that sections with these features, summed, had so many tokens, give or take."""
        gain = [sum(map(mul, row, vector)) for row in self._covariance]
        spread = sum(map(mul, gain, vector)) + variance
        error = tokens - sum(map(mul, self._weights, vector))
        # What no doubt explains was no count of these texts: a cut prompt, another template.
        limit = _OUTLIER * spread**0.5
        error = max(-limit, min(limit, error))
        share = [value / spread for value in gain]
        self._weights = [w + s * error for w, s in zip(self._weights, share, strict=True)]
        self._covariance = [
            [value - s * g for value, g in zip(row, gain, strict=True)]
            for row, s in zip(self._covariance, share, strict=True)
        ]


def _read(text: str, extras: int, share: float) -> Vector:
    """The features of a text, from so much of it, in slices spread evenly."""
    size = len(text)
    wanted = max(_LEAST_READ, int(size * share))
    if wanted >= size:
        return features(text, extras)
    slices = min(_SLICES, max(1, wanted // _LEAST_READ))
    length = wanted // slices
    step = (size - length) // max(1, slices - 1)
    read = "".join([text[i * step : i * step + length] for i in range(slices)])
    return [1.0, extras, *[value * size / len(read) for value in features(read, 0)[2:]]]


def _density(text: str) -> Vector:
    """Features of the text itself, a character."""
    size = max(1, len(text))
    return [value / size for value in features(text, 0)[2:]]
