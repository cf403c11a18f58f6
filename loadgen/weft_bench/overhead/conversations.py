"""Bodies of a coding agent's calls: a conversation that grows with each call. Pure.

The first body has answers with tool calls, and the tools' results. Each later one adds the text
that the mock engine has answered, and a result: about 2.7 KB, as in recorded coding sessions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from weft_bench.fake.answers import WORD

# Characters of a tool call's arguments and of a tool's result, on average.
_ARGUMENTS: Final = 500
_RESULT: Final = 2000
_WORDS: Final = 50
# System prompt and tools take at most this share of the first body, and at most these characters.
_HEAD_SHARE: Final = 8
_HEAD: Final = 24_000
_LINES: Final = (
    "    def read(self, path: str) -> bytes:", '        """Return the file\'s bytes."""',
    "        with open(path, 'rb') as file:", "            return file.read()", "",
    'log.warning("no entry for %s", name)', "if {name, other} <= known and not found[0]:",
    "FAILED tests/unit/test_store.py::test_entries - AssertionError: 3 != 4",
    "\tsrc/store/index.c:214:17: note: expanded from macro 'MIN'", "100%|#####| 12/12 [00:03]",
)  # fmt: skip


class Conversation:
    """One program's calls. size: bytes of the first body, approximately."""

    def __init__(self, model: str, size: int, seed: int) -> None:
        self._random = Random(seed)
        self._number = 0
        head = min(_HEAD, size // _HEAD_SHARE)
        tool = {"name": "run", "description": self._text(head // 2), "parameters": {}}
        self._rest = b'],"model":%b,"max_tokens":%d,"stream":true,"tools":[%b]}' % (
            _json(model),
            _WORDS,
            _json({"type": "function", "function": tool}),
        )
        first = [
            {"role": "system", "content": self._text(head // 2)},
            {"role": "user", "content": f"Task {seed}: " + self._text(size // 8)[:2000]},
        ]
        self._begun = b'{"messages":[' + b",".join(map(_json, first))
        while len(self._begun) + len(self._rest) < size - _ARGUMENTS - _RESULT:
            self._turn()

    def bodies(self, count: int) -> Iterator[bytes]:
        """Yield the bodies of the next calls: each begins with the messages of the one before."""
        for _ in range(count):
            yield self._begun + self._rest
            said = {"role": "assistant", "content": WORD * _WORDS}
            result = {"role": "user", "content": self._text(_ARGUMENTS + _RESULT)}
            self._begun += b",%b,%b" % (_json(said), _json(result))

    def _turn(self) -> None:
        self._number += 1
        name = f"call_{self._random.getrandbits(64):016x}"
        arguments = json.dumps({"path": f"src/{self._number}.py", "text": self._text(_ARGUMENTS)})
        call = {"id": name, "type": "function", "function": {"name": "run", "arguments": arguments}}
        answer = {"role": "assistant", "content": None, "tool_calls": [call]}
        size = int(_RESULT * self._random.uniform(0.5, 1.5))
        result = {"role": "tool", "tool_call_id": name, "content": self._text(size)}
        self._begun += b",%b,%b" % (_json(answer), _json(result))

    def _text(self, size: int) -> str:
        """Return about `size` characters of code and output."""
        lines: list[str] = []
        while size > 0:
            line = f"{self._random.choice(_LINES)} {self._random.getrandbits(24)}"
            lines.append(line)
            size -= len(line) + 1
        return "\n".join(lines)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
