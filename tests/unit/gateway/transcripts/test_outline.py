"""Where a prompt leaves an earlier one, in the client's JSON."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from weft_gateway.model import ProgramKey
from weft_gateway.programs.prompts import Found, Prompts
from weft_gateway.transcripts.outline import Outline, outline

KEY = ProgramKey("t", "p")
LINE = "x-anthropic-billing-header: cc_version=2.1; cch=a1b2c;"
SYSTEM = "You are an agent.\nToday is Friday, 2026-11-27.\nBe brief."


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"Use {name}.", "input_schema": {"type": "object"}}


def turns(count: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": f"turn {n} " + "ü" * 40} for n in range(count)]


def chat(system: str, count: int) -> dict[str, Any]:
    first = {"role": "system", "content": system}
    return {"model": "m", "tools": [*map(tool, "abc")], "messages": [first, *turns(count)]}


def messages(system: str, count: int) -> dict[str, Any]:
    return {
        "model": "m",
        "messages": turns(count),
        "system": [{"type": "text", "text": system}],
        "tools": [*map(tool, "abc")],
    }


def responses(system: str, count: int) -> dict[str, Any]:
    return {
        "model": "m",
        "instructions": system,
        "input": turns(count),
        "tools": [*map(tool, "abc")],
    }


def outlined(body: dict[str, Any], ascii_too: bool = True) -> tuple[Outline, bytes]:
    raw = json.dumps(body, ensure_ascii=ascii_too).encode()
    found = outline(raw, body, None, "m", 0)
    assert found is not None
    return found, raw


def follow(before: dict[str, Any], now: dict[str, Any], **options: Any) -> tuple[Found, bytes]:
    """Return how the second body continues the first one, of 1,000 tokens."""
    prompts = Prompts()
    first, raw = outlined(before, **options)
    prompts.keep(KEY, "digest", prompts.find(KEY, first, raw, before), 1000.0, "r0", 0.0)
    second, raw = outlined(now, **options)
    return prompts.find(KEY, second, raw, now), raw


@pytest.mark.parametrize("ascii_too", [True, False])
@pytest.mark.parametrize("form", [chat, messages, responses])
def test_a_change_is_found_at_its_byte(form: Any, ascii_too: bool) -> None:
    def change(now: dict[str, Any]) -> tuple[str, str, bytes]:
        found, raw = follow(form(SYSTEM, 5), now, ascii_too=ascii_too)
        assert found.change is not None
        return found.change.kind, found.change.path, raw[found.change.byte :]

    system = {chat: "messages[0]", messages: "system", responses: "instructions"}[form]
    kind, path, rest = change(form(SYSTEM.replace("27", "28"), 7))
    assert (kind, path, rest[:7]) == ("date or counter", system, b"Friday,")
    kind, path, rest = change(form(SYSTEM.replace("brief", "polite"), 7))
    assert (kind, path, rest[:10]) == ("system prompt", system, b"Be polite.")
    reordered = form(SYSTEM, 7)
    reordered["tools"] = [*map(tool, "acb")]
    kind, path, rest = change(reordered)
    assert (kind, path) == ("tools reordered", "tools[1]")
    added = form(SYSTEM, 7)
    added["tools"].append(tool("d"))
    assert change(added)[:2] == ("tools", "tools[3]")
    edited = form(SYSTEM, 7)
    history = edited["input" if form is responses else "messages"]
    at = 3 if form is chat else 2
    history[at]["content"] = "edited"
    kind, path, rest = change(edited)
    assert (kind, path) == (
        "edited history",
        f"{'input' if form is responses else 'messages'}[{at}]",
    )
    assert rest.lstrip(b", ").startswith(b'{"role": "user", "content": "edited"}')
    thinking = form(SYSTEM, 7) | {"chat_template_kwargs": {"enable_thinking": False}}
    assert change(thinking)[0] == "options"


@pytest.mark.parametrize("form", [chat, messages, responses])
def test_what_engines_do_not_see_is_no_change(form: Any) -> None:
    marked = form(SYSTEM, 7)
    marked["tools"][2]["cache_control"] = {"type": "ephemeral"}
    history = marked["input" if form is responses else "messages"]
    history[-1]["cache_control"] = history[2]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    found, _ = follow(form(SYSTEM, 5), marked)
    assert (found.change, found.common) == (None, 5)
    billed = form(LINE + "\n" + SYSTEM, 7)
    found, _ = follow(form(LINE.replace("a1b2c", "d3e4f") + "\n" + SYSTEM, 5), billed)
    assert (found.change, found.common) == (None, 5)
    assert found.billed, "in another place, engines render it"


def test_another_conversation_with_the_same_beginning_is_no_change() -> None:
    for now in (chat(SYSTEM, 4), chat("You help.", 1), chat(SYSTEM, 5)):
        now["messages"][-1]["content"] = "Something else."
        found, _ = follow(chat(SYSTEM, 5), now)
        assert found.change is None
        assert found.reach[0] == found.reach[1]


def test_a_summary_in_place_of_many_messages_is_a_compaction() -> None:
    summary = chat(SYSTEM, 1)
    summary["messages"][-1]["content"] = "The conversation so far: " + "much. " * 400
    found, _ = follow(chat(SYSTEM, 30), summary)
    assert found.change is not None
    assert found.change.kind == "compaction"
    cut = chat(SYSTEM, 30)
    del cut["messages"][4:20]
    found, _ = follow(chat(SYSTEM, 30), cut)
    assert found.change is not None
    assert (found.change.kind, found.change.path) == ("compaction", "messages[4]")


@pytest.mark.parametrize("prompt", [" ".join(map(str, range(2500))), list(range(4000))])
def test_a_prompt_without_messages_is_compared_in_pieces(prompt: Any) -> None:
    longer = prompt + prompt[:100]
    found, _ = follow({"prompt": prompt}, {"prompt": longer})
    assert found.change is None
    assert found.reach[0] >= 900
    changed = longer[:2000] + longer[2010:]
    found, raw = follow({"prompt": prompt}, {"prompt": changed})
    assert found.change is not None
    assert found.change.path == "prompt"
    assert found.change.byte <= raw.find(json.dumps(changed[1990:2010])[1:-1].encode()) + 100
    assert found.change.byte > 1024


def test_positions_after_a_change_start_from_counted_prompts() -> None:
    """A long head with few tokens, such as tools, would mislead an estimate by bytes."""
    prompts = Prompts()
    for count, tokens in ((1, 100.0), (3, 1000.0), (5, 4000.0)):
        body = chat(SYSTEM + "-" * 5000, count)
        now, raw = outlined(body)
        found = prompts.find(KEY, now, raw, body)
        prompts.keep(KEY, "digest", found, tokens, "r0", 0.0)
    body = chat(SYSTEM + "-" * 5000, 7)
    edited = deepcopy(body)
    edited["messages"][4]["content"] = "edited"
    now, raw = outlined(edited)
    found = prompts.find(KEY, now, raw, edited)
    assert found.reach == (1000.0, 4000.0)


def test_prompts_are_bounded_and_belong_to_their_tenant() -> None:
    prompts = Prompts(limit=20_000)
    for number in range(200):
        for tenant in ("a", "b"):
            body = chat(f"You are {number}.", 3)
            now, raw = outlined(body)
            key = ProgramKey(tenant, str(number))
            found = prompts.find(key, now, raw, body)
            assert found.before is None, "a tenant sees no other tenant's prompts"
            prompts.keep(key, f"{tenant}{number}", found, 100.0, "r0", 0.0)
            prompts.keep(key, f"{tenant}{number}", found, 100.0, "r0", 0.0)
            if number < 50 and tenant == "a":
                prompts.forget(key)
    assert 10 < len(prompts) < 60
    assert prompts.name("b199") == ProgramKey("b", "199")
    assert prompts.name("b1") is None
    # A new session of the tenant with an old history is found by the last messages.
    body = chat("You are 199.", 5)
    now, raw = outlined(body)
    found = prompts.find(ProgramKey("b", "new"), now, raw, body)
    assert (found.common, found.same_head) == (3, True)
    for tenant in ("a", "b"):
        for number in range(200):
            prompts.forget(ProgramKey(tenant, str(number)))
    assert len(prompts) == 0
    assert prompts.find(ProgramKey("b", "new"), now, raw, body) == Found(now)
