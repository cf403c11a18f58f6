"""`GET /weft/slo`, and stages that clients state, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.turns import MESSAGES
from weft_gateway.programs.identity import tenant_of

KEYS = ("own", "gold", "silver")

pytestmark = [pytest.mark.system, pytest.mark.anyio]

FILE = """
version: 1
default: report
classes:
  report: {deadline: 90s, attainment: 0.9}
  quick: {deadline: 0.001ms, attainment: 0.5}
  step: {scope: call, deadline: 20s}
"""


@pytest.fixture
def slo_file(tmp_path: Path) -> str:
    file = tmp_path / "slo.yaml"
    file.write_text(FILE)
    return str(file)


async def program(gateway: Any, name: str, key: str = "gold", **headers: str) -> None:
    """A program of one call."""
    own = {"authorization": f"Bearer {key}", "x-session-id": name, **headers}
    await gateway.call(body={"messages": MESSAGES}, headers=own)
    deleted = await gateway.client.delete(f"/v1/sessions/{name}", headers=own)
    assert deleted.status_code == 200


async def test_report_has_units_of_each_class_and_tenant(
    engine: Any, weft: Any, slo_file: str
) -> None:
    async with engine() as stub, weft(stub, slo_file=slo_file) as gateway:
        await program(gateway, "a")
        await program(gateway, "b", "silver")
        await program(gateway, "c", **{"x-weft-slo": "quick"})
        found = (await gateway.client.get("/weft/slo")).json()
        classes = {one["class"]: one for one in found["classes"]}
        assert (classes["report"]["met"], classes["report"]["goal_met"]) == (2, True)
        assert (classes["quick"]["late"], classes["quick"]["goal_met"]) == (1, False)
        assert sum(classes["quick"]["misses"].values()) == 1
        assert classes["step"]["units"] == 0
        gold, silver = tenant_of("gold"), tenant_of("silver")
        assert {(row["class"], row["tenant"], row["met"]) for row in found["rows"]} == {
            ("report", gold, 1), ("report", silver, 1), ("quick", gold, 0),
        }  # fmt: skip
        attained = {one["tenant"]: one["attainment"] for one in found["tenants"]}
        assert attained == {gold: 0.5, silver: 1.0}
        assert found["fairness"]["attainment"] == pytest.approx(0.9)
        assert sum(classes["report"]["slack"]["calls"]) == 2


async def test_refused_call_counts_as_a_miss(engine: Any, weft: Any, slo_file: str) -> None:
    async with weft(slo_file=slo_file) as gateway:
        headers = {"x-weft-slo": "step", "x-session-id": "run"}
        answer = await gateway.call(body={"messages": MESSAGES}, headers=headers)
        assert answer.status_code == 503
        again = {**headers, "x-stainless-retry-count": "1"}
        await gateway.call(body={"messages": MESSAGES}, headers=again)
        # The client repeats the call of a program with a deadline for all of it.
        await gateway.call(body={"messages": MESSAGES}, headers={"x-session-id": "other"})
        found = (await gateway.client.get("/weft/slo")).json()
        classes = {one["class"]: one for one in found["classes"]}
        assert classes["step"]["refused"] == classes["step"]["units"] == 1
        assert classes["step"]["misses"] == {"refused": 1}
        assert classes["report"]["units"] == 0


async def receipt(gateway: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (await gateway.client.get(f"/v1/receipts/{name}")).json()
    return found


async def test_stages_of_a_session_and_of_a_call(engine: Any, weft: Any, slo_file: str) -> None:
    async with engine() as stub, weft(stub, slo_file=slo_file) as gateway:
        stages = [{"name": "find", "calls": 2}, {"name": "draft", "calls": 4, "parallel": True}]
        new = {"id": "run", "kind": "sql", "stages": stages}
        made = await gateway.client.post("/v1/sessions", json=new)
        assert made.status_code == 201
        assert "stages" in made.json()["told"]
        body, run = {"messages": MESSAGES}, {"x-session-id": "run"}
        await gateway.call(body=body, headers={**run, "x-request-id": "a"})
        first = (await receipt(gateway, "a"))["slo"]
        assert (first["remaining_calls"], first["stated"]) == (2, True)
        assert first["budget_s"] == pytest.approx(30.0, abs=1.0)
        weft_ = {"kind": "sql", "stage": "draft", "stages_left": 5}
        await gateway.call(body={**body, "weft": weft_}, headers={**run, "x-request-id": "b"})
        found = await receipt(gateway, "b")
        assert found["slo"]["remaining_calls"] == 5
        fates = {hint["hint"]: hint["fate"] for hint in found["hints"]}
        applied = "applied: forecasts of calls with a deadline use it"
        assert fates == {f"weft.{name}": applied for name in weft_}


async def test_wrong_stages_fail_no_call_and_reach_no_other_program(
    engine: Any, weft: Any, slo_file: str
) -> None:
    async with engine() as stub, weft(stub, slo_file=slo_file) as gateway:
        wrong = {
            "x-weft-kind": "x" * 65, "x-weft-stage": "", "x-weft-stages-left": "many",
        }  # fmt: skip
        answer = await gateway.call(
            body={"messages": MESSAGES, "weft": {"kind": {}, "stages_left": -3}},
            headers={**wrong, "x-session-id": "liar", "x-request-id": "a"},
        )
        assert answer.status_code == 200
        fates = {hint["hint"]: hint["fate"] for hint in (await receipt(gateway, "a"))["hints"]}
        assert fates["weft.stages_left"] == "ignored: must be 0 to 64"
        name = "ignored: must be 1 to 64 letters, digits, spaces or . _ : / -"
        assert fates["weft.kind"] == fates["x-weft-kind"] == fates["x-weft-stage"] == name
        assert fates["x-weft-stages-left"] == "ignored: must be a number"
        headers = {"x-session-id": "other", "x-weft-stages-left": "0"}
        await gateway.call(body={"messages": MESSAGES}, headers=headers)
        budgets = [each.json["vllm_xargs"]["weft_budget"] for each in stub.requests]
        assert budgets == [pytest.approx(90.0, abs=1.0)] * 2


@pytest.mark.parametrize(
    ("new", "param", "said"),
    [
        ({"stages": [{"name": "a"}] * 65}, "stages", "at most 64"),
        ({"stages": [{"name": "a", "calls": 0}]}, "stages.0.calls", "greater"),
        ({"stages": [{"name": "a", "calls": "2"}]}, "stages.0.calls", "must be a whole number"),
        ({"stages": [{"name": "a", "parallel": 1}]}, "stages.0.parallel", "must be true or false"),
        ({"stages": [{"name": "a\n"}]}, "stages.0.name", "must be 1 to 64 letters, digits"),
        ({"stages": [{"name": "a", "call": 2}]}, "stages.0.call", "unknown key"),
        ({"stages": [{"calls": 2}]}, "stages.0.name", "required"),
        ({"stages": ["a"]}, "stages.0", "must be an object"),
        ({"kind": "x" * 65}, "kind", "must be 1 to 64 letters, digits"),
        ({"sol": "report"}, "sol", "unknown key; did you mean slo?"),
        ({"slo": "reprot"}, "slo", "step; did you mean report?"),
        ({"slo": True}, "slo", "must be a string"),
        ({"deadline_s": "100"}, "deadline_s", "must be a number"),
        ({"deadline_s": True}, "deadline_s", "must be a number"),
    ],
)
async def test_invalid_session_is_refused(
    engine: Any, weft: Any, slo_file: str, new: dict[str, Any], param: str, said: str
) -> None:
    async with engine() as stub, weft(stub, slo_file=slo_file) as gateway:
        answer = await gateway.client.post("/v1/sessions", json=new)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param)
        assert said in error["message"]


async def test_deadline_of_an_existing_session_refers_to_its_class(
    weft: Any, slo_file: str
) -> None:
    async with weft(slo_file=slo_file) as gateway:
        for new in ({"slo": "quick"}, {"deadline_s": 5}):
            answer = await gateway.client.post("/v1/sessions", json={"id": "run", **new})
            assert answer.json()["slo"] == "quick"
