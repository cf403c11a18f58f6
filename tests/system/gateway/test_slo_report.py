"""`GET /weft/slo` and the goals of sessions, over HTTP."""

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
        assert sum(classes["quick"]["causes"].values()) == 1
        assert classes["step"]["units"] == 0
        gold, silver = tenant_of("gold"), tenant_of("silver")
        assert {(row["class"], row["tenant"], row["met"]) for row in found["rows"]} == {
            ("report", gold, 1), ("report", silver, 1), ("quick", gold, 0),
        }  # fmt: skip
        attained = {one["tenant"]: one["attainment"] for one in found["tenants"]}
        assert attained == {gold: 0.5, silver: 1.0}
        assert found["fairness"]["attainment"] == pytest.approx(0.9)


async def test_refused_call_counts_once(engine: Any, weft: Any, slo_file: str) -> None:
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
        assert classes["step"]["causes"] == {}
        assert classes["report"]["units"] == 0


async def receipt(gateway: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (await gateway.client.get(f"/v1/receipts/{name}")).json()
    return found


async def test_names_of_kinds_and_stages_have_no_effect(
    engine: Any, weft: Any, slo_file: str
) -> None:
    async with engine() as stub, weft(stub, slo_file=slo_file) as gateway:
        new = {"id": "run", "kind": "sql", "stages": [{"name": "find", "calls": 2}]}
        made = await gateway.client.post("/v1/sessions", json=new)
        assert (made.status_code, made.json()["told"]) == (201, {})
        answer = await gateway.call(
            body={"messages": MESSAGES, "weft": {"kind": {}, "stages_left": 5}},
            headers={"x-session-id": "run", "x-request-id": "a", "x-weft-stages-left": "9"},
        )
        assert answer.status_code == 200
        found = await receipt(gateway, "a")
        fates = {hint["hint"]: hint["fate"] for hint in found["hints"]}
        assert fates == {f"weft.{name}": "ignored: unknown" for name in ("kind", "stages_left")}
        assert found["slo"]["remaining_calls"] == 0


@pytest.mark.parametrize(
    ("new", "param", "said"),
    [
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
