"""The rules that repair prompts, in the forms of all APIs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from weft_gateway.policies.repairs import RULES, repaired

LINE = "x-anthropic-billing-header: cc_version=2.1.332.3ba; cc_entrypoint=cli; cch=00000;"
DATE = "Today's date: Sat Nov 28 2026"
NOTE = f"<system-reminder>\n{DATE}\n</system-reminder>"


def repair(body: dict[str, Any], *rules: str) -> dict[str, Any]:
    """Return a body after rules that change it. They do not change it again."""
    raw, applied = repaired(json.dumps(body).encode(), rules)
    assert applied == rules
    assert repaired(raw, rules) == (raw, ())
    found: dict[str, Any] = json.loads(raw)
    return found


@pytest.mark.parametrize("joint", ["\n", "\n\n", ""])
def test_the_billing_line_goes_however_a_proxy_has_joined_it(joint: str) -> None:
    body = {"messages": [{"role": "system", "content": f"{LINE}{joint}You."}]}
    got = repair(body, "billing_line")
    assert got == {"messages": [{"role": "system", "content": "You."}]}
    got = repair({"instructions": f"{LINE}{joint}You."}, "billing_line")
    assert got == {"instructions": "You."}


def test_a_block_or_message_of_nothing_else_goes() -> None:
    line, text = {"type": "text", "text": LINE}, {"type": "text", "text": "You."}
    assert repair({"system": [line, text]}, "billing_line") == {"system": [text]}
    messages = [{"role": "system", "content": LINE}, {"role": "user", "content": "Hi"}]
    assert repair({"messages": messages}, "billing_line") == {"messages": messages[1:]}


def test_a_null_list_of_tools_stops_no_rule() -> None:
    body = {"instructions": f"{LINE}\nYou.", "tools": None}
    raw, applied = repaired(json.dumps(body).encode(), tuple(RULES))
    assert (json.loads(raw), applied) == ({**body, "instructions": "You."}, ("billing_line",))


@pytest.mark.parametrize("form", ["function", "plain"])
def test_tools_are_sorted(form: str) -> None:
    tools: list[Any] = [{"name": name} for name in "cab"]
    if form == "function":
        tools = [{"type": "function", "function": tool} for tool in tools]
    got = repair({"tools": tools}, "tool_order")["tools"]
    assert got == [tools[1], tools[2], tools[0]]


END = {
    "user": ({"role": "user", "content": "Hi"}, {"role": "user", "content": f"Hi\n\n{NOTE}"}),
    "tool": ({"role": "tool", "content": "5"}, {"role": "tool", "content": f"5\n\n{NOTE}"}),
    "parts": (
        {"role": "user", "content": []},
        {"role": "user", "content": [{"type": "text", "text": NOTE}]},
    ),
    # Templates of models drop an agent's thoughts when a message of a user follows them.
    "result": (
        {"role": "user", "content": [{"type": "tool_result", "content": "5"}]},
        {"role": "user", "content": [{"type": "tool_result", "content": f"5\n\n{NOTE}"}]},
    ),
}


@pytest.mark.parametrize("end", END)
def test_a_date_goes_to_the_end(end: str) -> None:
    last, expected = END[end]
    first, begun = {"role": "user", "content": "Do."}, {"role": "assistant", "content": "So"}
    asked = [first, begun, last, begun]
    moved = [first, begun, expected, begun]
    got = repair({"system": f"You.\n  {DATE}\nDo.", "messages": asked}, "date_line")
    assert got == {"system": "You.\nDo.", "messages": moved}
    head = {"role": "system", "content": f"You.\n{DATE}"}
    got = repair({"messages": [head, *asked]}, "date_line")
    assert got == {"messages": [{"role": "system", "content": "You."}, *moved]}


def test_a_date_goes_to_the_end_of_an_input() -> None:
    body = {"instructions": f"You.\n{DATE}", "input": "Hi"}
    assert repair(body, "date_line")["input"] == f"Hi\n\n{NOTE}"
    output = {"type": "function_call_output", "output": "5"}
    body = {"instructions": f"You.\n{DATE}", "input": [output]}
    assert repair(body, "date_line")["input"] == [{**output, "output": f"5\n\n{NOTE}"}]


@pytest.mark.parametrize(
    "body",
    [
        {"system": "Work today.\nVersion of 2026-11-28.", "messages": [{"role": "user"}]},
        {"system": DATE + 160 * ".", "messages": [{"role": "user"}]},
        {"messages": [{"role": "system", "content": DATE}]},
        {"messages": [{"role": "user", "content": DATE}], "tools": [{"name": "a"}, {"name": "b"}]},
        {"messages": [{"role": "system", "content": None}, {"role": None}], "tools": 5},
        {"messages": ["a"], "system": 5},
        {"prompt": DATE},
        {"system": f"You.\n{DATE}", "messages": [{"role": "user", "content": {"a": 1}}]},
        {"system": f"You.\n{DATE}", "messages": [{"role": "user", "content": 0}]},
    ],
)
def test_other_bodies_stay_as_they_are(body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    assert repaired(raw, tuple(RULES)) == (raw, ())
