"""The lines that `weft up` prints when it is ready. Users can paste the commands unchanged."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx


def served_model(base_url: str, key: str) -> str:
    """Return the first model that the gateway lists, or "" if it lists none. key: an API key that
    the gateway accepts.
    """
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        answer = httpx.get(f"{base_url}/v1/models", headers=headers, timeout=5.0, trust_env=False)
        return str(answer.json()["data"][0]["id"])
    except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError):
        return ""


def lines(
    base_url: str, key: str, model: str, logs: Path, times: Sequence[str], total_s: float
) -> list[str]:
    """Return the lines. key: an API key, "" if none is required. times: the parts of the start,
    which took `total_s` seconds in total.
    """
    shown = [f"Ready after {total_s:.1f} s ({', '.join(times)}).", "", f"Base URL  {base_url}/v1"]
    shown.append(f"Live view {base_url}/ui")
    if key:
        shown.append(f"API key   {key} (of this run only, beside yours)")
    shown += [f"Logs      {logs}", ""]
    shown += _calls(base_url, key, model) if model else ["No replica lists a model."]
    return [*shown, "", "Ctrl-C stops everything."]


def _calls(base_url: str, key: str, model: str) -> list[str]:
    question = {"role": "user", "content": "Hello"}
    body = {"model": model, "messages": [question], "max_tokens": 32}
    curl = ["curl", f"{base_url}/v1/chat/completions", "-H", "content-type: application/json"]
    if key:
        curl += ["-H", f"authorization: Bearer {key}"]
    found = [shlex.join([*curl, "-d", _quoted(body)])]
    if importlib.util.find_spec("openai"):
        client = f"base_url={_quoted(base_url + '/v1')}, api_key={_quoted(key or 'none')}"
        program = (
            f"import openai; print(openai.OpenAI({client}).chat.completions.create("
            f"model={_quoted(model)}, max_tokens=32, messages=[{_quoted(question)}])"
            ".choices[0].message.content)"
        )
        # The path of the running Python, because PATH may have no `python`.
        found.append(shlex.join([sys.executable, "-c", program]))
    return found


def _quoted(value: object) -> str:
    """Return a value without null or a truth value as JSON, which is Python too."""
    return json.dumps(value, ensure_ascii=False)
