"""`weft run` as a process, and an engine whose answers are hashes of the messages."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WINDOW = 8
ROWS = 60
WORKFLOW = """
weft: 1
name: digest
model: tiny
inputs: {docs: list, question: str}
ops:
  facts:
    for_each: docs
    llm: {user: "{{ question }} {{ item }}", max_tokens: 16}
  vote: {llm: {user: "{{ facts }}", temperature: 1, max_tokens: 16}}
  sure:
    loop: {max: 3, until: "{{ 'a' in check or round == 3 }}"}
    body:
      check: {llm: {user: "{{ vote }} {{ round }} {{ previous }}", max_tokens: 16}}
outputs: {vote: vote, sure: sure}
"""


class Answers:
    """An engine script: the answer is a hash of the messages. hold: answer nothing more."""

    def __init__(self) -> None:
        self.count = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self.after: tuple[int, Callable[[], None]] | None = None
        self.status = "200 OK"

    async def __call__(self, wire: Any, request: Any) -> None:
        self.count += 1
        if self.after is not None and self.count == self.after[0]:
            self.after[1]()
        await self.hold.wait()
        text = hashlib.sha256(
            json.dumps(request.json["messages"], sort_keys=True).encode()
        ).hexdigest()[:12]
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "tiny"}
        if "poison" in str(request.json["messages"]):
            error = {"message": "poison is not allowed", "type": "x", "code": 400}
            await wire.plain({"error": error}, "400 Bad Request")
            return
        await wire.plain(body | {"choices": [choice], "usage": usage}, self.status)


class Runs:
    """Starts `weft run` in a folder."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        (folder / "wf.yaml").write_text(WORKFLOW)
        self.rows([{"docs": [f"d{n % 9}", f"e{n}"], "question": f"q{n}"} for n in range(ROWS)])

    def rows(self, rows: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.folder / "in.jsonl").write_text(text)

    async def start(self, output: str, *options: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "weft_gateway.cli", "run", "wf.yaml", "--input", "in.jsonl"),
            *("--output", output, "--gateway", self.url, "--in-flight", str(WINDOW), *options),
            cwd=self.folder,
            env={"OPENAI_API_KEY": "test", **os.environ, "NO_COLOR": "1"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, output: str, *options: str) -> tuple[int, str]:
        process = await self.start(output, *options)
        async with asyncio.timeout(120):
            _, errors = await process.communicate()
        assert process.returncode is not None
        return process.returncode, errors.decode()
