"""A bounded cache of answers (Helium's prompt cache). Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

# The memory of an entry beside its texts, bytes.
_ENTRY_BYTES: Final = 300


class Answers:
    """Answers by request; the least recently used ones are evicted. most_bytes: of all entries,
    approximately.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held = 0
        self._entries: OrderedDict[str, tuple[Any, int]] = OrderedDict()

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def get(self, key: str) -> Any:
        """Return an answer. Raises KeyError."""
        value, _ = self._entries[key]
        self._entries.move_to_end(key)
        return value

    def put(self, key: str, value: Any) -> None:
        """Add an answer. One larger than the cache is not kept."""
        size = _ENTRY_BYTES + _bytes(value)
        if size > self._most or key in self._entries:
            return
        self._entries[key] = value, size
        self._held += size
        while self._held > self._most:
            _, (_, freed) = self._entries.popitem(last=False)
            self._held -= freed


def _bytes(value: Any) -> int:
    """Return the approximate memory of a JSON value."""
    size, level = 0, [value]
    while level:
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.keys()
                inner += one.values()
            elif isinstance(one, list | tuple):
                inner += one
            size += 50 + (len(one) if isinstance(one, str) else 0)
        level = inner
    return size
