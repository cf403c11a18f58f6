"""A client that sends raw bytes, for requests that libraries refuse or change."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httptools
from support.waiting import DEADLINE_S


@dataclass
class Answer:
    """One answer. status 0: the connection ended without an answer."""

    status: int = 0
    body: bytes = b""
    whole: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.whole = True


async def ask(url: str, request: bytes) -> Answer:
    """Send these bytes on a new connection, and return the first answer."""
    parts = urlsplit(url)
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            writer.write(request)
            return await read_answer(reader)
        finally:
            writer.close()


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Read the only answer of a connection."""
    answer = Answer()
    parser = httptools.HttpResponseParser(answer)
    while not answer.whole and (data := await reader.read(65536)):
        parser.feed_data(data)
        answer.status = parser.get_status_code()
    return answer
