"""Dialogues in the formats of the public data sets."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from weft_bench.micro.tags.dialogues import dialogues
from weft_bench.workloads.schema import TraceError


def write(file: Path, *lines: dict[str, Any]) -> None:
    file.parent.mkdir(exist_ok=True)
    with lzma.open(file, "wt") as opened:
        opened.writelines(f"{json.dumps(line)}\n" for line in lines)


def function(api: str, name: str) -> dict[str, Any]:
    details = {"name": name, "description": "d", "parameters": {}, "response": {"much": 1}}
    return {"api": api, "function": details}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(
        tmp_path / "bfcl_multi_turn/functions.jsonl.xz",
        function("travel_booking", "book"), function("math_api", "add"),
    )  # fmt: skip
    messages = [{"role": role, "content": role} for role in ("system", "user", "assistant", "tool")]
    write(
        tmp_path / "tau_airline/trajectories.jsonl.xz",
        {"messages": [*messages, {"role": "assistant", "content": "end"}]},
    )
    write(
        tmp_path / "bfcl_multi_turn/base.jsonl.xz",
        {
            "involved_classes": ["MathAPI"], "initial_config": {"state": "x" * 900},
            "path": ["MathAPI.add", "MathAPI.add"],
            "question": [[{"role": "user", "content": "one"}], [{"role": "user", "content": "2"}]],
        },
    )  # fmt: skip
    write(
        tmp_path / "agent_calls/miniswe.jsonl.xz",
        {"session_id": "a", "timestamp": 2, "input": "task\nseen", "output": "second"},
        {"session_id": "a", "timestamp": 1, "input": "task", "output": "first"},
    )
    write(
        tmp_path / "agent_calls/magagent.jsonl.xz",
        {"session_id": "a", "timestamp": 1, "input": "user: hi\n\nassistant: ho\n\nuser: again",
         "output": ""},
    )  # fmt: skip
    return tmp_path


def roles(body: dict[str, Any]) -> str:
    return " ".join(message["role"] for message in body["messages"])


def test_each_answer_is_a_call_with_the_messages_before_it(data: Path) -> None:
    found = dialogues(data)
    (airline,) = found["tau_airline"]
    assert [roles(body) for body in airline] == ["system user", "system user assistant tool"]
    assert [tool["function"]["name"] for tool in airline[0]["tools"]] == ["book"]
    assert "response" not in airline[0]["tools"][0]["function"]
    (functions,) = found["bfcl"]
    assert roles(functions[-1]) == (
        "system user assistant tool assistant user assistant tool"
    )  # fmt: skip
    assert [tool["function"]["name"] for tool in functions[0]["tools"]] == ["add"]


def test_text_is_split_into_messages(data: Path) -> None:
    found = dialogues(data)
    (issues,) = found["miniswe"]
    assert [roles(body) for body in issues] == ["user", "user assistant tool"]
    assert issues[1]["messages"][1:] == [
        {"role": "assistant", "content": "first"}, {"role": "tool", "content": "\nseen"}
    ]  # fmt: skip
    (agents,) = found["magagent"]
    assert [m["content"] for m in agents[0]["messages"]] == ["hi", "ho", "again"]


def test_short_dialogues_make_no_long_one(data: Path) -> None:
    found = dialogues(data)
    assert found["long"] == found["restarted"] == []


def test_missing_sets_are_skipped(tmp_path: Path, data: Path) -> None:
    (data / "agent_calls/miniswe.jsonl.xz").unlink()
    assert "miniswe" not in dialogues(data)
    with pytest.raises(TraceError, match="holds none of"):
        dialogues(tmp_path / "nowhere")
