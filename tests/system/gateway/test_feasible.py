"""Programs whose target cannot be met: refused at their first call, never later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
from weft_engine.wire import CallReport

pytestmark = [pytest.mark.system, pytest.mark.anyio]

FILE = """
version: 1
default: batch
classes:
  strict: {deadline: 30s, late: refuse}
  batch: {}
"""
MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def slo_file(tmp_path: Path) -> str:
    file = tmp_path / "slo.yaml"
    file.write_text(FILE)
    return str(file)


def slow(service_s: float) -> Any:
    """Return the script of an engine whose calls take this time by its reports."""

    async def script(wire: Any, request: Any) -> None:
        used = CallReport(
            call=request.headers["x-weft-call"],
            service_s=service_s,
            prompt_tokens=10,
            output_tokens=10,
        )
        await wire.plain({"choices": []}, headers={"x-weft-report": used.to_json()})

    return script


def headers(slo: str, program: str) -> dict[str, str]:
    return {"x-weft-slo": slo, "x-session-id": program, "x-request-id": program}


async def learn(gateway: Any, stub: Any) -> None:
    await gateway.call(body={"messages": MESSAGES}, headers=headers("batch", "first"))
    stub.requests.clear()


async def test_program_that_cannot_meet_its_target_is_refused_at_its_first_call(
    engine: Any, weft: Any, slo_file: str
) -> None:
    async with engine(script=slow(40.0)) as stub, weft(stub, slo_file=slo_file) as gateway:
        await learn(gateway, stub)
        for _ in range(2):
            got = await gateway.call(body={"messages": MESSAGES}, headers=headers("strict", "run"))
            error = got.json()["error"]
            assert (got.status_code, error["code"]) == (429, "slo_infeasible")
            assert "30.0 s are left, the program needs about 40.0 s" in error["message"]
            assert int(got.headers["retry-after"]) >= 1
        assert stub.requests == []
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert (session["calls"], session["target"]) == (0, None)
        receipt = (await gateway.client.get("/v1/receipts/run")).json()
        assert (receipt["outcome"], receipt["slo"]["class"]) == ("refused", "strict")
        fates = {hint["hint"]: hint["fate"] for hint in receipt["hints"]}
        assert fates == {"x-weft-slo": "applied as the class of the program"}
        text = (await gateway.client.get("/metrics")).text
        assert 'weft_slo_programs_total{class="strict",outcome="refused"} 1.0' in text
        assert 'weft_slo_programs_total{class="strict",outcome="unended"} 0.0' in text


async def test_other_programs_do_not_make_a_target_infeasible(
    engine: Any, weft: Any, slo_file: str
) -> None:
    """Long programs of other kinds, and a short one that is not known yet."""
    async with engine(script=slow(20.0)) as stub, weft(stub, slo_file=slo_file) as gateway:
        system = {"role": "system", "content": "You are an agent."}
        for program in range(12):
            for _ in range(3):
                sent = headers("batch", f"long-{program}")
                await gateway.call(body={"messages": [system, *MESSAGES]}, headers=sent)
            await gateway.client.delete(f"/v1/sessions/long-{program}")
        for number in range(3):
            got = await gateway.call(
                body={"messages": MESSAGES}, headers=headers("strict", f"short-{number}")
            )
            assert got.status_code == 200


async def test_an_idle_replica_serves_a_program_from_time_to_time(
    engine: Any, weft: Any, slo_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine has become faster since the forecast was learned."""
    async with engine(script=slow(40.0)) as stub, weft(stub, slo_file=slo_file) as gateway:
        await learn(gateway, stub)
        got = await gateway.call(body={"messages": MESSAGES}, headers=headers("strict", "a"))
        assert (got.status_code, got.headers["x-should-retry"]) == (429, "false")
        monkeypatch.setattr("weft_gateway.calls.features.feasible._PROBE_S", 0.0)
        got = await gateway.call(body={"messages": MESSAGES}, headers=headers("strict", "b"))
        assert got.status_code == 200


async def refused(gateway: Any) -> int:
    rows = (await gateway.client.get("/weft/slo")).json()["classes"]
    return int({row["class"]: row["refused"] for row in rows}.get("strict", 0))


async def test_refused_program_counts_once_until_it_ends(
    engine: Any, weft: Any, slo_file: str
) -> None:
    async with engine(script=slow(40.0)) as stub, weft(stub, slo_file=slo_file) as gateway:
        await learn(gateway, stub)
        for program in ("one", "two", "one", "two"):
            await gateway.call(body={"messages": MESSAGES}, headers=headers("strict", program))
        assert await refused(gateway) == 2
        await gateway.client.delete("/v1/sessions/one")
        await gateway.call(body={"messages": MESSAGES}, headers=headers("strict", "one"))
        assert await refused(gateway) == 3


@pytest.mark.parametrize("lineage", [True, False])
async def test_retries_of_a_client_without_a_session_count_once(
    lineage: bool, engine: Any, weft: Any, slo_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The client would wait for the seconds of Retry-After. It repeats a call that has to wait for
    # others, but not one whose path alone is too long.
    monkeypatch.setattr(openai.AsyncOpenAI, "_calculate_retry_timeout", lambda *_: 0.0)
    monkeypatch.setattr("weft_gateway.calls.features.feasible.wait_s", lambda _: 60.0)
    async with (
        engine(script=slow(20.0)) as stub,
        weft(stub, slo_file=slo_file, lineage=lineage) as gateway,
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=2) as client,
    ):
        await learn(gateway, stub)
        for units in (1, 2):
            with pytest.raises(openai.RateLimitError):
                await client.chat.completions.create(
                    model="tiny",
                    messages=[{"role": "user", "content": f"Question {units}"}],
                    extra_headers={"x-weft-slo": "strict"},
                )
            assert await refused(gateway) == units
            text = (await gateway.client.get("/metrics")).text
            assert f'weft_errors_total{{code="slo_infeasible"}} {3 * units}.0' in text


async def test_anthropic_client_gets_its_own_form_of_the_refusal(
    engine: Any, weft: Any, slo_file: str
) -> None:
    async with engine(script=slow(40.0)) as stub, weft(stub, slo_file=slo_file) as gateway:
        await learn(gateway, stub)
        body = {"messages": MESSAGES, "max_tokens": 16}
        got = await gateway.call("/v1/messages", body=body, headers=headers("strict", "run"))
        error = got.json()["error"]
        assert (got.status_code, error["type"]) == (429, "rate_limit_error")


async def test_later_call_of_a_program_is_never_refused(
    engine: Any, weft: Any, slo_file: str
) -> None:
    async with engine(script=slow(40.0)) as stub, weft(stub, slo_file=slo_file) as gateway:
        # Nothing is known of the costs, so the first call is sent.
        for _ in range(2):
            got = await gateway.call(body={"messages": MESSAGES}, headers=headers("strict", "run"))
            assert got.status_code == 200
        assert len(stub.requests) == 2
