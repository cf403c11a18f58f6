"""Endpoints for a replica's description, state, order and faults."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

import orjson
from weft_engine.kv_command import KvCommand

from weft_bench.simulated import http
from weft_bench.simulated.dialects.base import CREATED
from weft_bench.simulated.faults import Fault
from weft_bench.simulated.service import Service

SECRET_HEADER: Final = b"x-weft-secret"


class Admin:
    """Builds the whole response to each request that is not a call."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._exact: dict[tuple[bytes, bytes], Callable[[Any], bytes]] = {
            (b"GET", b"/health"): lambda _: http.json_response({}),
            (b"GET", b"/v1/models"): lambda _: self._models(),
            (b"GET", b"/metrics"): lambda _: self._metrics(),
            (b"GET", b"/weft/state"): lambda _: self._state(),
            (b"POST", b"/weft/policy"): self._policy,
            (b"POST", b"/weft/kv"): self._kv,
            (b"GET", b"/simulated/state"): lambda _: self._simulated(),
            (b"GET", b"/simulated/calls"): lambda _: self._calls(),
            (b"DELETE", b"/simulated/calls"): self._clear_calls,
            (b"GET", b"/simulated/faults"): lambda _: self._faults(),
            (b"POST", b"/simulated/faults"): self._set_fault,
            (b"DELETE", b"/simulated/faults"): self._clear_faults,
        }

    def answer(self, method: bytes, path: bytes, secret: bytes, raw: bytes) -> bytes:
        """Return the whole response. secret: the header's value."""
        wanted = self._service.about.secret.encode()
        guarded = path.startswith((b"/weft/", b"/simulated/"))
        if guarded and wanted and not hmac.compare_digest(wanted, secret):
            return http.error(403, "x-weft-secret is missing or wrong")
        if method == b"GET" and path.startswith(b"/weft/calls/"):
            return self._call(path.removeprefix(b"/weft/calls/").decode("latin-1"))
        found = self._exact.get((method, path))
        if found is None:
            return http.error(404, "Not Found")
        try:
            return found(orjson.loads(raw) if raw else {})
        except ValueError as error:
            return http.error(400, str(error))

    def _models(self) -> bytes:
        about = self._service.about
        card = {
            "id": about.model,
            "object": "model",
            "created": CREATED,
            "owned_by": "weft-simulated",
            "simulated": True,
            "preset": about.preset,
            "speed_up": about.speed_up,
            "root": about.model,
            "parent": None,
            "max_model_len": about.context,
        }
        return http.json_response({"object": "list", "data": [card]})

    def _state(self) -> bytes:
        state = self._service.engine.state()
        return http.json_response({"weft": {"simulated": True}, "engines": [state]})

    def _call(self, call: str) -> bytes:
        report = self._service.reports.get(call)
        if report is None:
            return http.error(404, f"no report of call {call!r}")
        return http.response(200, report.to_json().encode())

    def _policy(self, body: Any) -> bytes:
        service, fields = self._service, _fields(body)
        policy, reset = str(fields.get("policy", "")), fields.get("reset_cache") is True
        if policy:
            service.engine.check(policy)

        def obey() -> None:
            if policy:
                service.engine.switch(policy, service.pace.now())
            if reset:
                service.engine.reset_cache()

        service.pace.between_steps(obey)
        coming = policy or service.engine.state()["policy"]
        return http.json_response({"engines": [{"policy": coming, "reset_cache": reset}]})

    def _kv(self, body: Any) -> bytes:
        service, advice = self._service, KvCommand.from_body(body)
        advice = replace(advice, ttl_s=advice.ttl_s * service.about.speed_up)
        service.pace.between_steps(lambda: service.engine.advise(advice))
        return http.json_response({"engines": [{"accepted": True}]})

    def _simulated(self) -> bytes:
        service = self._service
        return http.json_response(
            {
                **asdict(service.about, dict_factory=_without_secret),
                **asdict(service.counters),
                "behind_s": service.pace.behind_s,
                "violations": [] if service.engine.busy else service.engine.violations(),
                **service.faults.state(),
            }
        )

    def _calls(self) -> bytes:
        return http.json_response({"calls": self._service.answered.told()})

    def _clear_calls(self, _: Any) -> bytes:
        self._service.answered.clear()
        return self._calls()

    def _faults(self) -> bytes:
        return http.json_response(self._service.faults.state())

    def _set_fault(self, body: Any) -> bytes:
        self._service.faults.set(Fault.from_mapping(body))
        return self._faults()

    def _clear_faults(self, _: Any) -> bytes:
        self._service.faults.clear()
        return self._faults()

    def _metrics(self) -> bytes:
        service = self._service
        text = "".join(
            f"# TYPE simulated_{name} {kind}\nsimulated_{name} {value}\n"
            for name, kind, value in (
                ("requests_total", "counter", service.counters.requests),
                ("requests_running", "gauge", service.counters.running),
                ("requests_aborted_total", "counter", service.counters.aborted),
                ("behind_seconds_total", "counter", service.pace.behind_s),
            )
        )
        # Routers read these vLLM metrics to see an engine's load.
        state, labels = service.engine.state(), f'{{engine="0",model_name="{service.about.model}"}}'
        text += "".join(
            f"# TYPE vllm:{name} gauge\nvllm:{name}{labels} {value}\n"
            for name, value in (
                ("num_requests_running", state["running"]),
                ("num_requests_waiting", state["waiting"]),
                ("kv_cache_usage_perc", state["kv_usage"]),
            )
        )
        return http.response(200, text.encode(), kind="text/plain")


def _fields(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise ValueError("the body must be a JSON object")
    return body


def _without_secret(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if name != "secret"}
