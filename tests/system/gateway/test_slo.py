"""Targets of programs over HTTP: the budget at the engine, the receipt, and the metrics."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from time import time
from typing import Any

import pytest
from support.turns import MESSAGES

KEYS = ("own", "gold")

pytestmark = [pytest.mark.system, pytest.mark.anyio]

FILE = """
version: 1
default: batch
classes:
  chat: {scope: turn, deadline: 60s}
  report: {deadline: 90s}
  step: {scope: call, deadline: 20s}
  batch: {}
"""
GOLD = {"authorization": "Bearer gold"}
RUN = {**GOLD, "x-session-id": "run"}


@pytest.fixture
def slo_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    keys = tmp_path / "keys.toml"
    keys.write_text('[keys.gold]\nkey = "gold"\nclass = "report"\nmay = ["chat", "step"]\n')
    monkeypatch.setenv("WEFT_KEYS_FILE", str(keys))
    file = tmp_path / "slo.yaml"
    file.write_text(FILE)
    return str(file)


def sent(stub: Any) -> list[dict[str, Any]]:
    return [request.json.get("vllm_xargs", {}) for request in stub.requests]


async def receipt(gateway: Any, name: str, headers: dict[str, str]) -> dict[str, Any]:
    answer = await gateway.client.get(f"/v1/receipts/{name}", headers=headers)
    found: dict[str, Any] = answer.json()
    return found


async def metrics(gateway: Any) -> list[str]:
    """The units that were counted. Classes of the file begin with zeros."""
    lines = (await gateway.client.get("/metrics")).text.splitlines()
    counts = [line for line in lines if line.startswith("weft_slo_programs_total")]
    return [line for line in counts if not line.endswith(" 0.0")]


async def test_each_call_of_a_program_gets_the_time_that_is_left(
    engine: Any, weft: Any, slo_file: str
) -> None:
    async with engine() as stub, weft(stub, slo_file=slo_file) as gateway:
        began = time()
        for _ in range(2):
            await gateway.call(body={"messages": MESSAGES}, headers={**RUN, "x-request-id": "a"})
            await asyncio.sleep(0.01)
        first, second = [xargs["weft_budget"] for xargs in sent(stub)]
        assert 0 < second < first - 0.01 < 90
        # For the order slack.
        assert 0 < sent(stub)[1]["weft_left"] < sent(stub)[0]["weft_left"] - 0.01 < 90
        assert [xargs["weft_deadline"] for xargs in sent(stub)] == [90.0, 90.0]
        found = (await receipt(gateway, "a", GOLD))["slo"]
        assert (found["class"], found["scope"], found["deadline_s"]) == ("report", "program", 90.0)
        assert began + 89 < found["target"] < time() + 90
        assert found["budget_s"] == second
        session = (await gateway.client.get("/v1/sessions/run", headers=GOLD)).json()
        assert (session["slo"], session["target"]) == ("report", found["target"])
        story = (await gateway.client.get("/v1/sessions/run/story", headers=GOLD)).json()
        assert [one["slo"]["target"] for one in story["receipts"]] == [found["target"]] * 2
        await gateway.client.delete("/v1/sessions/run", headers=GOLD)
        met = 'weft_slo_programs_total{class="report",outcome="met"} 1.0'
        assert await metrics(gateway) == [met]


async def test_call_without_a_target_sends_no_budget(engine: Any, weft: Any, slo_file: str) -> None:
    async with engine() as stub, weft(stub, slo_file=slo_file) as gateway:
        await gateway.call(body={"messages": MESSAGES}, headers={"x-request-id": "a"})
        await gateway.call(body={"messages": MESSAGES}, headers={"x-weft-slo": "report"})
        usage = {"service", "waiting", "arrival", "critical_path"}
        known = {f"weft_{name}" for name in {"call", "program", "tenant", "tags"} | usage}
        assert [xargs.keys() for xargs in sent(stub)] == [known, known]
        assert (await receipt(gateway, "a", {}))["slo"] is None
        assert await metrics(gateway) == []


async def test_class_that_the_key_may_not_use_is_clamped_and_the_receipt_says_so(
    engine: Any, weft: Any, slo_file: str
) -> None:
    async with engine() as stub, weft(stub, slo_file=slo_file) as gateway:
        headers = {**RUN, "x-request-id": "a", "x-weft-slo": "batch"}
        await gateway.call(body={"messages": MESSAGES}, headers=headers)
        found = await receipt(gateway, "a", GOLD)
        assert found["slo"]["class"] == "report"
        (hint,) = [hint for hint in found["hints"] if hint["hint"] == "x-weft-slo"]
        assert hint["fate"] == ("applied, clamped to report: the key may use chat, report, step")


async def test_each_turn_has_its_own_target(engine: Any, weft: Any, slo_file: str) -> None:
    async with engine() as stub, weft(stub, slo_file=slo_file) as gateway:
        targets = []
        for number in (1, 2):
            headers = {**RUN, "x-weft-slo": "chat", "x-request-id": f"turn{number}"}
            await gateway.call(body={"messages": MESSAGES[:2]}, headers=headers)
            targets.append((await receipt(gateway, f"turn{number}", GOLD))["slo"]["target"])
        assert targets[0] < targets[1]
        # Engines rank calls by the program's arrival plus this time.
        ranks = [xargs["weft_arrival"] + xargs["weft_deadline"] for xargs in sent(stub)]
        assert ranks == [pytest.approx(target, abs=1e-3) for target in targets]
        # The answer without tool calls ends the turn.
        met = 'weft_slo_programs_total{class="chat",outcome="met"} 2.0'
        assert await metrics(gateway) == [met]
        assert len(stub.requests) == 2


async def test_call_of_another_endpoint_neither_begins_nor_ends_a_turn(
    engine: Any, weft: Any, slo_file: str
) -> None:
    async with engine() as stub, weft(stub, slo_file=slo_file) as gateway:
        headers = {**RUN, "x-weft-slo": "chat"}
        await gateway.call("/v1/embeddings", body={"input": "text"}, headers=headers)
        assert 0 < float(json.loads(stub.requests[0].headers["x-weft-context"])["weft_budget"]) < 60
        assert await metrics(gateway) == []


async def test_session_sets_the_goal_of_its_calls(engine: Any, weft: Any, slo_file: str) -> None:
    async with engine() as stub, weft(stub, slo_file=slo_file) as gateway:
        new = {"id": "run", "slo": "report", "deadline_s": 100}
        answer = await gateway.client.post("/v1/sessions", json=new, headers=GOLD)
        assert (answer.status_code, answer.json()["slo"], answer.json()["target"]) == (
            201, "report", None,
        )  # fmt: skip
        await gateway.call(body={"messages": MESSAGES}, headers=RUN)
        assert 90 < sent(stub)[0]["weft_budget"] < 100
        for wrong, param in (
            ({"slo": "batch"}, "slo"), ({"deadline_s": 1}, "deadline_s"), ({"slo": 3}, "slo"),
            ({"deadline_s": -1}, "deadline_s"),
        ):  # fmt: skip
            answer = await gateway.client.post("/v1/sessions", json=wrong, headers=GOLD)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_deadline_of_a_later_call_refers_to_the_class_of_the_session(
    engine: Any, weft: Any, slo_file: str
) -> None:
    async with engine() as stub, weft(stub, slo_file=slo_file) as gateway:
        for name, slo, deadline, fate in (
            ("step", "step", "deadline-s", "applied: the orders for deadlines use it"),
            (
                "chat",
                "chat",
                "program-deadline-s",
                "ignored: the class has no deadline per program",
            ),
        ):
            new = {"id": name, "slo": slo}
            await gateway.client.post("/v1/sessions", json=new, headers=GOLD)
            headers = {**GOLD, "x-session-id": name, f"x-weft-{deadline}": "100"}
            await gateway.call(
                body={"messages": MESSAGES}, headers={**headers, "x-request-id": name}
            )
            found = await receipt(gateway, name, GOLD)
            assert [hint["fate"] for hint in found["hints"]] == [fate]
            session = (await gateway.client.get(f"/v1/sessions/{name}", headers=GOLD)).json()
            assert session["slo"] == slo
        first, second = [xargs["weft_budget"] for xargs in sent(stub)]
        assert second < 60 < first < 100


async def test_receipt_of_a_refused_call_shows_its_hints(weft: Any, slo_file: str) -> None:
    async with weft(slo_file=slo_file) as gateway:
        hints = {"x-weft-slo": "chat", "x-weft-replica": "r9", "x-weft-deadline-s": "0"}
        headers = {**RUN, **hints, "x-request-id": "a"}
        answer = await gateway.call(body={"messages": MESSAGES}, headers=headers)
        assert answer.status_code == 503
        found = await receipt(gateway, "a", GOLD)
        assert {hint["hint"]: hint["fate"] for hint in found["hints"]} == {
            "x-weft-slo": "applied as the class of the program",
            "x-weft-replica": "ignored: the call was refused",
            "x-weft-deadline-s": "ignored: must be more than 0",
        }


async def test_refused_call_counts_for_the_class_of_its_session(weft: Any, slo_file: str) -> None:
    async with weft(slo_file=slo_file) as gateway:
        new = {"id": "run", "slo": "step"}
        await gateway.client.post("/v1/sessions", json=new, headers=GOLD)
        await gateway.call(body={"messages": MESSAGES}, headers=RUN)
        refused = 'weft_slo_programs_total{class="step",outcome="refused"} 1.0'
        assert await metrics(gateway) == [refused]


async def test_class_per_call_and_a_passed_target(engine: Any, weft: Any, slo_file: str) -> None:
    async with engine() as stub, weft(stub, slo_file=slo_file) as gateway:
        headers = {**RUN, "x-weft-slo": "step"}
        await gateway.call(body={"messages": MESSAGES}, headers=headers)
        assert 0 < sent(stub)[0]["weft_budget"] < 20
    async with engine() as stub, weft(stub, keys_file="") as gateway:
        late = {"x-session-id": "late", "x-weft-program-deadline-s": "0.000001"}
        for name in ("a", "b"):
            headers = {**late, "x-request-id": name}
            await gateway.call(body={"messages": MESSAGES}, headers=headers)
        assert sent(stub)[1]["weft_budget"] == 0.0
        assert sent(stub)[1]["weft_left"] < 0
        for name in ("a", "b"):
            found = (await receipt(gateway, name, {}))["slo"]
            assert (found["late"], found["cause"]) == (True, "work")
        await gateway.client.delete("/v1/sessions/late")
        assert await metrics(gateway) == ['weft_slo_programs_total{class="",outcome="late"} 1.0']


async def test_interrupted_turn_is_unended(engine: Any, weft: Any, slo_file: str) -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    canned = {"/v1/chat/completions": answer}
    async with engine(canned=canned) as stub, weft(stub, slo_file=slo_file) as gateway:
        headers = {**RUN, "x-weft-slo": "chat"}
        await gateway.call(body={"messages": MESSAGES[:2]}, headers=headers)
        assert await metrics(gateway) == []
        await gateway.call(body={"messages": MESSAGES[:2]}, headers=headers)
        unended = 'weft_slo_programs_total{class="chat",outcome="unended"} 1.0'
        assert await metrics(gateway) == [unended]


async def test_idle_program_is_unended_and_not_met(engine: Any, weft: Any, slo_file: str) -> None:
    async with engine() as stub, weft(stub, slo_file=slo_file, program_idle_s=0.05) as gateway:
        await gateway.call(body={"messages": MESSAGES}, headers=RUN)
        for _ in range(600):
            if await metrics(gateway):
                break
            await asyncio.sleep(0.05)
        unended = 'weft_slo_programs_total{class="report",outcome="unended"} 1.0'
        assert await metrics(gateway) == [unended]


async def test_deadline_of_one_program_changes_no_other_program(engine: Any, weft: Any) -> None:
    """A wrong hint affects only its own program: the others send the same bytes as without it."""
    async with engine() as stub, weft(stub) as gateway:
        body = {"messages": MESSAGES}
        await gateway.call(body=body, headers={"x-session-id": "other"})
        wrong = {"x-session-id": "liar", "x-weft-program-deadline-s": "0.001"}
        await gateway.call(body=body, headers=wrong)
        await gateway.call(body=body, headers={"x-session-id": "third"})
        first, liar, third = sent(stub)
        assert "weft_budget" in liar
        assert first.keys() == third.keys()
        assert "weft_budget" not in third
