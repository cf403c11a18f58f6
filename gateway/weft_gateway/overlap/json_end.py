"""Finds the end of a JSON value while it arrives. Sans-I/O."""

from __future__ import annotations

import re
from typing import Final

_OUTSIDE: Final = re.compile(r'["{}\[\]]')
_INSIDE: Final = re.compile(r'["\\]')


class JsonEnd:
    """Follows one value through its pieces by strings, escapes and depth only.

    The end of an object, an array or a string is visible; the end of a number or a literal is not.
    A parser must check the value once its end is known. State is of constant size.
    """

    __slots__ = ("_depth", "_escaped", "_in_string")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False  # The last character of a piece was a backslash in a string.

    def feed(self, text: str, position: int = 0) -> int:
        """Read `text` from `position`. Returns the position after the value's last character, -1 if
        it is not in this piece. Must not be called after the end was found.
        """
        size = len(text)
        while position < size:
            if self._escaped:
                self._escaped = False
                position += 1
                continue
            found = (_INSIDE if self._in_string else _OUTSIDE).search(text, position)
            if found is None:
                return -1
            position = found.end()
            character = found[0]
            if character == '"':
                self._in_string = not self._in_string
                if not self._in_string and not self._depth:
                    return position
            elif character == "\\":
                self._escaped = True
            elif character in "{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth <= 0:
                    return position
        return -1
