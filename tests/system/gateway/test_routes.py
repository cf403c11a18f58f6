"""Routes other than calls: sessions, models, health, metrics, administration, OpenAPI page."""

import re
from typing import Any

import pytest

KEYS = ("own", "sk-other")

pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def test_a_session_is_created_listed_and_deleted(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        made = await gateway.client.post("/v1/sessions", json={"id": "s", "metadata": {"a": 1}})
        assert made.status_code == 201
        assert made.json()["metadata"] == {"a": 1}
        again = await gateway.client.post("/v1/sessions", json={"id": "s"})
        assert again.status_code == 200
        await gateway.call(headers={"x-session-id": "s"})
        session = (await gateway.client.get("/v1/sessions/s")).json()
        assert (session["object"], session["calls"]) == ("session", 1)
        assert session["created_at"] == made.json()["created_at"]
        assert session["last_call_completion"] >= session["last_call_arrival"]
        ended = await gateway.client.delete("/v1/sessions/s")
        deleted = ended.json()
        assert (deleted["id"], deleted["object"], deleted["deleted"]) == (
            "s",
            "session.deleted",
            True,
        )
        assert (deleted["calls"], deleted["calls_in_flight"]) == (1, 0)
        assert (await gateway.client.get("/v1/sessions/s")).status_code == 404
        missing = await gateway.client.delete("/v1/sessions/s")
        assert missing.json()["error"]["code"] == "session_not_found"


async def test_a_session_without_an_id_gets_one(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        made = await gateway.client.post("/v1/sessions")
        assert made.status_code == 201
        assert (await gateway.client.get(f"/v1/sessions/{made.json()['id']}")).status_code == 200


async def test_finish_session_ends_a_session_like_vllm_router(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        await gateway.client.post("/v1/sessions", json={"id": "a/b"})
        params = {"session_id": "a/b"}
        assert (await gateway.client.post("/finish_session", params=params)).status_code == 200
        assert (await gateway.client.post("/finish_session", params=params)).status_code == 404


async def test_sessions_are_listed_in_pages_and_per_tenant(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        for n in range(5):
            await gateway.client.post("/v1/sessions", json={"id": f"s{n}"})
        other = {"authorization": "Bearer sk-other"}
        assert (await gateway.client.get("/v1/sessions", headers=other)).json()["data"] == []
        assert (await gateway.client.get("/v1/sessions/s0", headers=other)).status_code == 404
        seen, after = [], ""
        while True:
            params = {"limit": 2, "after": after}
            page = (await gateway.client.get("/v1/sessions", params=params)).json()
            seen += [session["id"] for session in page["data"]]
            after = page["last_id"]
            if not page["has_more"]:
                break
        assert seen == ["s0", "s1", "s2", "s3", "s4"]


async def test_models_are_the_union_and_ids_may_have_slashes(engine: Any, weft: Any) -> None:
    async with (
        engine(models=("org/a", "b")) as first,
        engine(models=("b", "c")) as second,
        weft(first, second) as gateway,
    ):
        listed = (await gateway.client.get("/v1/models")).json()
        assert listed["object"] == "list"
        assert [card["id"] for card in listed["data"]] == ["org/a", "b", "c"]
        for path in ("/v1/models/org/a", "/v1/models/org%2Fa"):
            assert (await gateway.client.get(path)).json()["id"] == "org/a"
        got = await gateway.client.get("/v1/models/nobody")
        assert (got.status_code, got.json()["error"]["code"]) == (404, "model_not_found")


async def test_health_reports_the_state_of_each_replica(engine: Any, weft: Any) -> None:
    async with engine() as up, engine(healthy=False) as down, weft(up, down) as gateway:
        got = await gateway.client.get("/health")
        assert got.status_code == 200
        first, second = got.json()["replicas"]
        assert (first["healthy"], first["kind"], first["models"]) == (True, "weft", ["tiny"])
        assert first["max_model_len"] == {"tiny": 4096}
        assert not second["healthy"]
        assert got.json()["table"] == {"state": "ok", "local": False}
        assert (await gateway.client.get("/ready")).json() == got.json()


async def test_kinds_of_replicas_are_detected(engine: Any, weft: Any) -> None:
    async with (
        engine(weft=False) as vllm,
        engine(weft=False, owner="llamacpp") as stock,
        engine(weft=False, models=()) as silent,
        weft(vllm, stock, silent) as gateway,
    ):
        kinds = [r["kind"] for r in (await gateway.client.get("/health")).json()["replicas"]]
        assert kinds == ["vllm", "stock", "unknown"]


async def test_the_policy_reaches_every_engine_with_the_secret(engine: Any, weft: Any) -> None:
    answer = {"/weft/policy": {"policy": "plas"}}
    async with (
        engine(canned=answer) as first,
        engine(canned=answer) as second,
        weft(first, second, engine_secret="shh") as gateway,
    ):
        got = await gateway.client.post("/weft/policy", json={"policy": "plas"})
        assert got.json()["applied"]
        assert got.json()["replicas"]["r1"]["answer"] == {"policy": "plas"}
        for stub in (first, second):
            assert stub.other[0].headers["x-weft-secret"] == "shh"
            assert stub.other[0].json == {"policy": "plas", "reset_cache": False}
        bad = await gateway.client.post("/weft/policy", json={"policy": "magic"})
        assert bad.status_code == 400


async def test_a_policy_that_an_engine_refuses_is_not_applied(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, "http://127.0.0.1:9") as gateway:
        got = (await gateway.client.post("/weft/policy", json={"policy": "fcfs"})).json()
        assert not got["applied"]
        assert got["replicas"]["r0"]["status"] == 404
        assert got["replicas"]["r1"]["error"] == "ConnectError"


async def test_the_state_shows_the_tables_integrity(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        got = (await gateway.client.get("/weft/state")).json()
        assert got["table"]["violations"] == []
        assert got["replicas"]["r0"]["answer"] == {"weft": {"policy": "fcfs"}}


async def test_administration_needs_the_admin_key(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, admin_key="root") as gateway:
        assert (await gateway.client.get("/weft/state")).status_code == 401
        headers = {"authorization": "Bearer root"}
        assert (await gateway.client.get("/weft/state", headers=headers)).status_code == 200


async def test_the_openapi_page_needs_no_other_host(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        page = await gateway.client.get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        assert "/openapi.json" in page.text
        assert "//" not in re.sub(r"^\s*//.*$", "", page.text, flags=re.MULTILINE)
        named = re.findall(r"""(?:src|href)=["']([^"']+)""", page.text)
        kinds = {name.rpartition(".")[2] for name in named}
        assert kinds >= {"js", "css"}
        for name in named:
            got = await gateway.client.get(name)
            assert (got.status_code, bool(got.content)) == (200, True), name
        # Swagger UI's badge requests another host unless this setting is null.
        assert '"validatorUrl": null' in page.text
        assert (await gateway.client.get("/redoc")).status_code == 404


async def test_other_engine_routes_are_passed_on_without_a_program(engine: Any, weft: Any) -> None:
    async def unknown(wire: Any, request: Any) -> None:
        await wire.plain({"error": "unknown"}, "404 Not Found")

    async def counts(wire: Any, request: Any) -> None:
        await wire.plain({"input_tokens": 3})

    async with (
        engine(script=counts) as first,
        engine(script=unknown) as second,
        weft(second, first) as gateway,
    ):
        got = await gateway.client.post("/v1/messages/count_tokens", json={"model": "tiny"})
        assert got.json() == {"input_tokens": 3}
        assert (await gateway.client.post("/v1/responses/resp_2")).status_code == 405
        assert gateway.in_flight() == 0


async def test_a_gateway_whose_key_every_replica_refuses_is_not_ready(
    engine: Any, weft: Any
) -> None:
    async with engine() as good, engine() as strict:
        handle = strict._answer

        async def refusing(wire: Any, request: Any) -> None:
            if request.target == "/v1/models":
                await wire.plain({"error": "Unauthorized"}, "401 Unauthorized")
            else:
                await handle(wire, request)

        strict._answer = refusing
        async with weft(strict, replica_api_key="sk-old") as gateway:
            got = await gateway.client.get("/ready")
            assert (got.status_code, got.json()["status"]) == (503, "replica_key_refused")
            assert got.json()["replicas"][0]["refuses"] == ["api_key"]
            # Health does not depend on the key: the replica still answers.
            assert (await gateway.client.get("/health")).status_code == 200
        async with weft(strict, good, replica_api_key="sk-old") as gateway:
            assert (await gateway.client.get("/ready")).status_code == 200
