"""The journals of running gateways, and files with their lines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec

from weft_bench.tune.recorded import Line


class TuneError(Exception):
    """A journal cannot be read or played. The message says why."""


def ask(gateway: str, method: str, path: str, body: Any = None) -> bytes:
    """Return a gateway's answer. Raises TuneError."""
    key = os.environ.get("WEFT_ADMIN_KEY", "")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    url = f"{gateway.rstrip('/').removesuffix('/v1')}{path}"
    try:
        answer = httpx.request(method, url, json=body, headers=headers, timeout=30, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TuneError(f"{gateway} cannot be reached: {error}") from None
    if not answer.is_success:
        raise TuneError(f"{gateway} answers {answer.status_code}: {answer.text[:200]}")
    return answer.content


@dataclass(slots=True)
class Journals:
    """Reads on where it has stopped. gaps: how often lines were missing between two readings."""

    gateways: Sequence[str]
    gaps: int = 0
    _last: dict[str, int] = field(default_factory=dict)

    def new(self) -> Iterator[tuple[bytes, Line]]:
        """Yield the new lines of all gateways, each also as written. Raises TuneError."""
        for gateway in self.gateways:
            while True:
                last = self._last.get(gateway, 0)
                lines = ask(gateway, "GET", f"/weft/journal?after={last}").splitlines()
                if not lines:
                    break
                for raw in lines:
                    line = msgspec.json.decode(raw, type=Line)
                    self.gaps += bool(last) and line.n != last + 1
                    self._last[gateway] = last = line.n
                    yield raw, line


def read(path: Path) -> list[Line]:
    """Return the lines of a file that `weft record` wrote. Raises TuneError."""
    try:
        return msgspec.json.Decoder(Line).decode_lines(path.read_bytes())
    except OSError as error:
        raise TuneError(f"{path} cannot be read: {error}") from None
    except msgspec.MsgspecError as error:
        raise TuneError(f"{path} is no record of `weft record`: {error}") from None
