"""An engine without a model whose prefix cache is real: blocks of 16 tokens by the hash of their
context, the plugin's ledger of evictions, and its reports.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict
from typing import Any

from support.scripted_engine import Received, Wire
from weft_engine.eviction_ledger import EvictionLedger
from weft_engine.wire import CallReport

BLOCK = 16
SAID = "I see."


def tokens_of(body: dict[str, Any]) -> list[str]:
    """Render a prompt as a chat template does, and cut it into tokens of four characters."""
    found = _cut("system", _text(body.get("instructions") or ""))
    found += _cut("system", _seen(body.get("system") or ""))
    for tool in body.get("tools") or []:
        own = {name: value for name, value in tool.items() if name != "cache_control"}
        found += _cut("tool", json.dumps(own))
    for message in body.get("messages") or body.get("input") or []:
        read = _seen if message["role"] == "system" else _text
        found += _cut(message["role"], read(message["content"]))
    return [*found, "<assistant>"]


def _seen(content: Any) -> str:
    """Leave out what vLLM leaves out."""
    text = _text(content)
    return text.partition("\n")[2] if text.startswith("x-anthropic-billing-header") else text


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part["text"] for part in content)
    return str(content)


def _cut(role: str, text: str) -> list[str]:
    return [f"<{role}>", *(text[at : at + 4] for at in range(0, len(text), 4))]


class BlockCache:
    """The cache of an engine with room for `blocks`, least recently used first. host: keys of
    blocks in host memory. clock: a time that each call advances by a second. hints, answers: for
    the next reports: outcomes of hints, and how often a prompt is counted.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.cached: OrderedDict[int, int] = OrderedDict()
        self.ledger = EvictionLedger(blocks)
        self.host: set[int] = set()
        self.clock = 0.0
        self.hints: tuple[str, ...] = ()
        self.answers = 1
        self.keys: dict[str, list[int]] = {}
        self.reports: dict[str, CallReport] = {}

    def take(self, keys: list[int], by: str) -> None:
        """Calls of a program take these blocks for other content."""
        gone = [key for key in keys if self.cached.pop(key, None) is not None]
        self.ledger.taken(range(len(gone)), gone)
        self.ledger.settle([(by, range(len(gone)))], self.clock)

    def empty(self) -> None:
        """Lose everything."""
        self.cached.clear()
        self.host.clear()
        self.ledger.emptied(self.clock)

    async def script(self, wire: Wire, request: Received) -> None:
        """Answer a call, with the plugin's report."""
        self.clock += 1.0
        body = request.json
        xargs = body["vllm_xargs"]
        tokens = tokens_of(body)
        keys, key = [], zlib.crc32(str(body.get("cache_salt")).encode())
        for end in range(BLOCK, len(tokens) + 1, BLOCK):
            key = zlib.crc32("\0".join(tokens[end - BLOCK : end]).encode(), key)
            keys.append(key)
        # The last token is computed in any case.
        most = keys[: (len(tokens) - 1) // BLOCK]
        hits = next((n for n, key in enumerate(most) if key not in self.cached), len(most))
        found = hits
        while found < len(most) and most[found] in self.host:
            found += 1
        loss = self.ledger.loss(keys[found:])
        for key in keys:
            self.cached[key] = 0
            self.cached.move_to_end(key)
        self.keys[xargs["weft_program"]] = keys
        over = len(self.cached) - self.blocks
        if over > 0:
            self.take([*self.cached][:over], xargs["weft_program"])
        emptied_at = self.ledger.emptied_at
        report = CallReport(
            xargs["weft_call"],
            service_s=0.01,
            prompt_tokens=len(tokens) * self.answers,
            cached_tokens=found * BLOCK * self.answers,
            loaded_tokens=(found - hits) * BLOCK,
            evicted_tokens=loss.blocks * BLOCK * self.answers,
            hints=self.hints,
            evicted_by=loss.program,
            evicted_s=self.clock - loss.at if loss.blocks else 0.0,
            emptied_s=0.0 if emptied_at is None else self.clock - emptied_at,
        )
        self.reports[xargs["weft_call"]] = report
        await wire.plain(answer_of(request.target), headers={"x-weft-report": report.to_json()})


def answer_of(target: str) -> dict[str, Any]:
    """Return an answer in the form of the API that was called."""
    if target == "/v1/messages":
        return {"role": "assistant", "content": [{"type": "text", "text": SAID}]}
    if target == "/v1/responses":
        part = {"type": "output_text", "text": SAID}
        return {"output": [{"type": "message", "role": "assistant", "content": [part]}]}
    return {"choices": [{"message": {"role": "assistant", "content": SAID}}]}
