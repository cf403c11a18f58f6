"""Texts with placeholders for the parts that differ in each run: ids, times, ports.

`<call>` stands for any value of its kind. `<call a>` is the same value in all texts of a play. A
backslash at the end of a line continues it on the next line, without that line's indentation.
"""

from __future__ import annotations

import re

NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?"
KINDS = {
    "batch": r"(?:msg)?batch_[0-9a-zA-Z]+",
    "call": r"call-[0-9a-f]+-[0-9a-f]+",
    "date": r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT",
    "day": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "digest": r"[0-9a-f]{16,64}",
    "file": r"file-[0-9a-f]+",
    "id": r"[A-Za-z0-9_.:-]+",
    "iso": r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|\+00:00)",
    "number": NUMBER,
    "port": r"[0-9]+",
    "request": r"req-[0-9a-f]+-[0-9a-f]+",
    "time": r"[0-9]{10}(?:\.[0-9]+)?",
}
_PLACEHOLDER = re.compile(r"<([a-z]+)((?: [a-z0-9]+)?)>")


class Placeholders:
    """The values of the placeholders of one play. known: by kind and name, as `call a`."""

    def __init__(self, **known: str) -> None:
        self.known = {name.replace("_", " "): value for name, value in known.items()}

    def fill(self, text: str) -> str:
        """Return a text to send. All its placeholders are known."""
        return _PLACEHOLDER.sub(lambda found: self.known[found[1] + found[2]], _joined(text))

    def match(self, expected: str, text: str) -> bool:
        """Whether the text is as expected. If it is, its named placeholders are known from now."""
        expected = _joined(expected)
        pattern, at, groups = "", 0, dict[str, str]()
        for found in _PLACEHOLDER.finditer(expected):
            pattern += re.escape(expected[at : found.start()])
            at, name = found.end(), found[1] + found[2]
            if name in self.known:
                pattern += re.escape(self.known[name])
            elif name in groups:
                pattern += f"(?P={groups[name]})"
            elif found[2]:
                groups[name] = f"g{len(groups)}"
                pattern += f"(?P<{groups[name]}>{KINDS[found[1]]})"
            else:
                pattern += KINDS[found[1]]
        matched = re.fullmatch(pattern + re.escape(expected[at:]), text)
        if matched is not None:
            self.known |= {name: matched[group] for name, group in groups.items()}
        return matched is not None


def _joined(text: str) -> str:
    return re.sub(r"\\\n *", "", text)
