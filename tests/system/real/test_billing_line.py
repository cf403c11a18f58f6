"""vLLM drops the line with which Claude Code begins its system prompt, in all APIs."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from support.stack import SECRET

pytestmark = [pytest.mark.system, pytest.mark.engine]

LINE = "x-anthropic-billing-header: cc_version=2.1.332.3ba; cc_entrypoint=cli;"
TEXT = "You are an agent.\nUse the tools and be brief."
USER = [{"role": "user", "content": "Hello"}]
PARTS = [{"type": "text", "text": LINE}, {"type": "text", "text": TEXT}]


def chat(system: Any) -> tuple[str, dict[str, Any]]:
    messages = [{"role": "system", "content": system}, *USER]
    return "/v1/chat/completions", {"messages": messages, "return_token_ids": True}


def messages(system: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/messages", {"system": system, "messages": USER}


def responses(system: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/responses", {"instructions": system, "input": USER, "store": False}


def responses_input(system: Any) -> tuple[str, dict[str, Any]]:
    items = [{"role": "system", "content": system}, *USER]
    return "/v1/responses", {"input": items, "store": False}


@pytest.mark.parametrize("api", [chat, messages, responses, responses_input])
def test_the_prompt_is_the_same_without_the_line(stack, api):
    def prompt(system: Any) -> Any:
        """Return the ids of a prompt's tokens, or their number where vLLM does not give the ids."""
        path, body = api(system)
        limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
        got = httpx.post(
            f"{stack.replicas[0]}{path}",
            json={"model": "weft-demo", limit: 1, **body},
            headers={"x-weft-secret": SECRET},
            timeout=60,
        ).json()
        return got.get("prompt_token_ids") or got["usage"]["input_tokens"]

    assert prompt(f"{LINE}\n{TEXT}") == prompt(TEXT)
    if api in (chat, messages):
        assert prompt(PARTS) == prompt(TEXT)
    assert prompt(f"{TEXT}\n{LINE}") != prompt(TEXT)
