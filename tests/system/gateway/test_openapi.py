"""The OpenAPI document lists every route, and its examples match the gateway."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest
from fastapi.routing import APIRoute
from weft_gateway.api.passthrough import _METHODS, _RESPONSE_METHODS
from weft_gateway.engine.endpoints import BY_PATH
from weft_gateway.engine.engine_request import program_digest
from weft_gateway.model import ProgramKey
from weft_gateway.programs.identity import ANONYMOUS
from weft_gateway.runs.records import Batch

pytestmark = [pytest.mark.system, pytest.mark.anyio]

EXAMPLES = json.loads(resources.files("weft_gateway.api").joinpath("examples.json").read_bytes())
# Each operation needs those before it.
STATEFUL = (
    "create_session", "create_chat_completion", "get_receipt", "create_response", "get_response",
    "list_input_items", "cancel_response", "delete_response", "create_prefill", "get_prefill",
    "delete_prefill", "create_prefill", "extend_prefill", "tag_prompts", "set_priority",
    "set_policy", "get_session", "list_sessions", "get_story", "get_top", "get_timeline",
    "delete_session", "create_session", "change_session", "change_program",
    "finish_session", "add_replica", "drain_replica", "resume_replica", "drain_replica",
    "remove_replica", "create_file", "get_file", "get_file_content", "list_files", "delete_file",
    "create_file", "create_batch", "get_batch", "list_batches", "cancel_batch",
    "create_message_batch", "get_message_batch", "list_message_batches", "cancel_message_batch",
    "get_message_batch_results", "delete_message_batch", "create_run", "get_run",
    "listen_to_run", "list_runs", "get_run_output", "cancel_run"
)  # fmt: skip
PARAMETERS = {
    "finish_session": {"session_id": "run-7"},
    "get_openai_usage": {"start_time": "1795132800"},
    "get_anthropic_usage": {"starting_at": "2026-11-20T00:00:00Z"},
}
HEADERS = {"x-weft-program": "run-7", "x-request-id": "req-1"}


def operations(document: dict[str, Any]) -> dict[str, tuple[str, str, dict[str, Any]]]:
    return {
        operation["operationId"]: (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def served(gateway: Any) -> set[tuple[str, str]]:
    """Return every method and path of the application, without the documentation pages."""
    found = {
        (method, route.path_format.replace(":path}", "}"))
        for route in gateway.parts.app.others.routes
        if isinstance(route, APIRoute) and route.include_in_schema
        for method in route.methods
    }
    found |= {("POST", path) for path in BY_PATH}
    found |= {(method, path.decode()) for path, methods in _METHODS.items() for method in methods}
    found |= {
        (method, "/v1/responses/{response_id}" + (part or b"").decode())
        for part, methods in _RESPONSE_METHODS.items()
        for method in methods
    }
    return found | {("POST", "/v1/hints/prefill/{prefill_id}/extend")}


async def test_every_route_is_described_with_examples(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        document = (await gateway.client.get("/openapi.json")).json()
        listed = operations(document)
        assert {(method, path) for method, path, _ in listed.values()} == served(gateway)
        assert len(listed) == sum(map(len, document["paths"].values())), (
            "operation ids are not unique"
        )
        assert set(listed) == set(EXAMPLES)
    for name, (_, _, operation) in listed.items():
        assert operation["summary"], name
        assert operation["description"], name
        for content in operation.get("requestBody", {"content": {}})["content"].values():
            assert "example" in content, name
        success = next(a for status, a in operation["responses"].items() if status[0] == "2")
        assert any("example" in content for content in success["content"].values()), name
        assert {"4XX", "5XX"} <= set(operation["responses"]), name


async def test_all_references_of_the_document_resolve(engine: Any, weft: Any) -> None:
    def references(value: Any) -> list[str]:
        inner = value.values() if isinstance(value, dict) else value
        if not isinstance(value, dict | list):
            return []
        own = [value["$ref"]] if isinstance(value, dict) and "$ref" in value else []
        return own + [found for each in inner for found in references(each)]

    async with engine() as stub, weft(stub) as gateway:
        document = (await gateway.client.get("/openapi.json")).json()
    for reference in references(document):
        target = document
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]


async def test_the_examples_match_requests_and_answers(engine: Any, weft: Any, until: Any) -> None:
    answers: dict[tuple[str, str], Any] = {}  # The engine's answers, by method and path.

    async def answer(wire: Any, request: Any) -> None:
        await wire.plain(answers[request.method, request.target])

    canned = {"/weft/policy": {"engines": []}, "/weft/kv": {"engines": []}}
    names = {"session_id": "run-7", "model_id": "weft-demo", "request_id": "req-1"}
    names["row"] = program_digest(ProgramKey(ANONYMOUS, "run-7"))
    names["name"] = EXAMPLES["add_replica"]["response"]["name"]
    names["response_id"] = EXAMPLES["create_response"]["response"]["id"]
    async with (
        engine(models=("weft-demo",), script=answer, canned=canned) as stub,
        weft(stub) as gateway,
    ):
        listed = operations((await gateway.client.get("/openapi.json")).json())
        own = {route.name for route in gateway.parts.app.others.routes}
        # The engine receives the extension of a prefill as a chat completion.
        passed = set(listed) - own - {"extend_prefill"}
        for name in passed:
            method, path, _ = listed[name]
            answers[method, path.format(**names)] = EXAMPLES[name]["response"]
        # A stopped program gets no other calls.
        others = set(listed) - set(STATEFUL) - {"listen_to_session", "stop_program"}
        for name in (*STATEFUL, *sorted(others), "stop_program"):
            method, path, _ = listed[name]
            example = EXAMPLES[name]
            form = {key: (None, value) for key, value in example.get("form", {}).items()}
            if name == "create_batch":
                example["request"]["input_file_id"] = names["file_id"]
            elif name == "get_message_batch_results":
                await until(lambda: not list(gateway.parts.batches.store.unfinished(Batch)))
            params = PARAMETERS.get(name)
            got = await gateway.client.request(
                method,
                path.format(**names),
                json=example.get("request"),
                files=form or None,
                params=params,
                headers=HEADERS,
            )
            if name == "cancel_response":
                # The stored response of the example was not generated in the background.
                assert got.json()["error"]["code"] == "invalid_request"
                continue
            assert got.status_code < 400, (name, got.text)
            if name == "create_prefill":
                names["prefill_id"] = got.json()["id"]
            elif name == "create_file":
                names["file_id"] = got.json()["id"]
            elif name == "create_run":
                names["run_id"] = got.json()["id"]
            elif name in ("create_batch", "create_message_batch"):
                names["batch_id"] = got.json()["id"]
            if name in passed:
                assert got.json() == example["response"], name
            # The members of a model come from the engine.
            elif "response" in example and name != "get_model":
                assert got.json().keys() == example["response"].keys(), name
