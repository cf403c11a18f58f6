"""The lines that `weft up` prints when it is ready. Users can paste the commands unchanged."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx


def served_model(base_url: str) -> str:
    """Return the first model that the gateway lists, or MODEL if it lists no model."""
    try:
        answer = httpx.get(f"{base_url}/v1/models", timeout=5.0, trust_env=False).json()
        return str(answer["data"][0]["id"])
    except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError):
        return "MODEL"


def lines(base_url: str, model: str, logs: Path, times: Sequence[str], total_s: float) -> list[str]:
    """Return the lines. times: the parts of the start, which took `total_s` seconds in total."""
    question = {"role": "user", "content": "Hello"}
    body = json.dumps({"model": model, "messages": [question], "max_tokens": 32})
    program = (
        f"import openai; print(openai.OpenAI(base_url={base_url + '/v1'!r}, api_key='none')"
        f".chat.completions.create(model={model!r}, max_tokens=32, messages=[{question!r}])"
        ".choices[0].message.content)"
    )
    # The path of the running Python, because PATH may have no `python`.
    python = shlex.quote(sys.executable)
    return [
        f"Ready after {total_s:.1f} s ({', '.join(times)}).",
        "",
        f"Base URL  {base_url}/v1",
        f"curl      curl {base_url}/v1/chat/completions "
        f"-H 'content-type: application/json' -d {shlex.quote(body)}",
        f'Python    {python} -c "{program}"',
        f"Logs      {logs}",
        "Ctrl-C stops everything.",
    ]
