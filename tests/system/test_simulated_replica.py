"""A simulated replica over sockets: reports, policies, faults, disconnects and the gateway."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from support.simulated_replica import simulated_replica
from support.stack import until
from weft_bench.simulated.answering import CRASHED
from weft_bench.stack.processes import NotReady, free_port, running
from weft_engine.wire import REPORT_COMMENT, CallReport

pytestmark = pytest.mark.system

BODY = {"model": "simulated", "messages": [{"role": "user", "content": "Which flights? " * 20}]}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def replica(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replica")
    with (
        simulated_replica(folder, "--speed-up", "1000") as url,
        httpx.Client(base_url=url, timeout=30, trust_env=False) as client,
    ):
        yield client


@pytest.fixture
def faulty(replica):
    """Yield the replica and remove its faults afterwards."""
    yield replica
    assert replica.delete("/simulated/faults").json()["faults"] == []


def state(client: httpx.Client) -> dict:
    return client.get("/simulated/state").json()


def idle(client: httpx.Client) -> bool:
    (engine,) = client.get("/weft/state").json()["engines"]
    return (
        engine["running"] == engine["waiting"] == state(client)["running"] == 0
        and engine["kv_usage"] == 0
        and state(client)["violations"] == []
    )


def test_the_replica_reports_that_it_is_simulated(replica, tmp_path):
    (card,) = replica.get("/v1/models").json()["data"]
    assert (card["simulated"], card["owned_by"]) == (True, "weft-simulated")
    assert replica.get("/weft/state").json()["weft"] == {"simulated": True}
    with simulated_replica(tmp_path, "--preset", "70b-h100"):
        (log,) = tmp_path.glob("*.log")
        until(lambda: "SIMULATED" in log.read_text(), "the log does not contain SIMULATED")
        assert "70b-h100" in log.read_text()


def test_a_call_with_an_id_gets_its_report_plain_and_streamed(replica):
    members = {"vllm_xargs": {"weft_call": "x", "weft_program": "p", "weft_service": 1e6}}
    plain = replica.post(CHAT, json=BODY | members, headers={"x-weft-call": "x"})
    report = CallReport.from_json(plain.headers["x-weft-report"])
    assert (report.call, report.policy, report.output_tokens) == ("x", "warm_plas", 50)
    assert report.service_s > 0
    assert report.queue_path == (7,), "a program with much service is not in the last queue"
    streamed = replica.post(CHAT, json=BODY | {"stream": True}, headers={"x-weft-call": "y"})
    *_, comment, done, rest = streamed.content.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    report = CallReport.from_json(comment.removeprefix(REPORT_COMMENT))
    assert (report.call, report.queue_path[0]) == ("y", 0)
    assert report.cached_tokens > 0
    assert CallReport.from_mapping(replica.get("/weft/calls/y").json()) == report
    assert replica.get("/weft/calls/z").status_code == 404
    silent = replica.post(CHAT, json=BODY)
    assert "x-weft-report" not in silent.headers


def test_the_policy_is_switched_and_the_cache_emptied(replica):
    answer = replica.post("/weft/policy", json={"policy": "mlfq", "reset_cache": True})
    assert answer.json()["engines"] == [{"policy": "mlfq", "reset_cache": True}]
    call = replica.post(CHAT, json=BODY, headers={"x-weft-call": "m"})
    report = CallReport.from_json(call.headers["x-weft-report"])
    assert (report.policy, report.cached_tokens) == ("mlfq", 0)
    assert replica.post("/weft/policy", json={"policy": "nonsense"}).status_code == 400
    for right in (
        {"action": "release", "program": "p"},
        {"action": "give_up", "program": "p"},
        {"action": "retain", "program": "p", "ttl_s": 1, "tokens": 64},
    ):
        assert replica.post("/weft/kv", json=right).status_code == 200
    for wrong in (
        {"action": "burn"},
        {"action": "retain", "program": "p"},
        {"action": "retain", "program": "p", "ttl_s": 1, "tokens": "all"},
        {"action": "release", "program": 7},
        {"action": "priority", "program": "p", "priority": "high"},
        [],
    ):
        assert replica.post("/weft/kv", json=wrong).status_code == 400
    replica.post("/weft/policy", json={"policy": "plas"})
    assert replica.get("/weft/state").json()["engines"][0]["policy"] == "plas"


def test_a_disconnect_aborts_the_call_and_keeps_its_report(replica):
    before = state(replica)["aborted"]
    body = BODY | {"stream": True, "max_tokens": 200_00, "ignore_eos": True}
    with replica.stream("POST", CHAT, json=body, headers={"x-weft-call": "gone"}) as answer:
        next(answer.iter_lines())
    until(lambda: idle(replica), "the call is still in the engine")
    assert state(replica)["aborted"] == before + 1
    until(lambda: replica.get("/weft/calls/gone").status_code == 200, "the report is missing")
    assert replica.get("/weft/calls/gone").json()["output_tokens"] < 20_000


def test_pipelined_requests_are_answered_in_order(replica):
    parts = urlsplit(str(replica.base_url))
    raw = b""
    for count in (3, 1, 2):
        body = json.dumps(BODY | {"max_tokens": count}).encode()
        last = b"connection: close\r\n" if count == 2 else b""
        raw += b"POST %b HTTP/1.1\r\nhost: x\r\n%bcontent-length: %d\r\n\r\n%b" % (
            CHAT.encode(), last, len(body), body,
        )  # fmt: skip
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(raw)
        answers = b"".join(iter(lambda: connection.recv(65536), b""))
    found = [int(a.split(b",")[0]) for a in answers.split(b'"completion_tokens":')[1:]]
    assert found == [3, 1, 2]


def test_a_fault_affects_a_reproducible_share_of_the_calls(faulty):
    faults = {"kind": "500", "share": 0.3, "seed": 4}
    assert faulty.post("/simulated/faults", json=faults).status_code == 200
    first = [faulty.post(CHAT, json=BODY).status_code for _ in range(60)]
    faulty.post("/simulated/faults", json=faults)
    assert [faulty.post(CHAT, json=BODY).status_code for _ in range(60)] == first
    assert set(first) == {200, 500}
    assert faulty.post("/simulated/faults", json={"kind": "flood"}).status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": BODY["messages"], "tools": [7], "tool_choice": "required"},
        {
            "messages": BODY["messages"],
            "tools": [{"name": "x", "parameters": {"type": "object", "required": ["a"],
                                                   "properties": ["a"]}}],
            "tool_choice": "required",
        },
        {"messages": BODY["messages"], "max_tokens": "many"},
        {"input": "x", "previous_response_id": ["x"]},
        [],
    ],
    ids=str,
)  # fmt: skip
def test_invalid_bodies_are_refused(replica, body):
    path = "/v1/responses" if "input" in body else CHAT
    answer = replica.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_internal_routes_need_the_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_ENGINE_SECRET", "open sesame")
    with simulated_replica(tmp_path) as url, httpx.Client(base_url=url, trust_env=False) as client:
        for path in ("/weft/state", "/weft/calls/x", "/simulated/state", "/simulated/faults"):
            assert client.get(path).status_code == 403
            assert client.get(path, headers={"x-weft-secret": "open"}).status_code == 403
        got = client.get("/simulated/state", headers={"x-weft-secret": "open sesame"})
        assert got.status_code == 200
        assert "sesame" not in got.text
        assert client.get("/v1/models").status_code == 200


def test_the_replica_imports_neither_torch_nor_vllm():
    code = "import sys, weft_bench.simulated.command; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "vllm", "zmq", "fastapi"} & set(done.stdout.split())


@pytest.mark.parametrize("stream", [False, True])
def test_the_cut_fault_cuts_an_answer(replica, stream):
    with pytest.raises(httpx.RemoteProtocolError):
        replica.post(CHAT, json=BODY | {"stream": stream}, headers={"x-simulated-fault": "cut"})
    until(lambda: idle(replica), "the call is still in the engine")


@pytest.mark.parametrize("stream", [False, True])
def test_the_hang_fault_blocks_a_call_until_its_client_disconnects(replica, stream):
    with pytest.raises(httpx.ReadTimeout):
        replica.post(
            CHAT, json=BODY | {"stream": stream}, headers={"x-simulated-fault": "hang"}, timeout=0.5
        )
    until(lambda: idle(replica), "the call is still in the engine")


def test_the_slow_fault_delays_an_answer(faulty):
    met = state(faulty)["met"]["slow"]
    faulty.post("/simulated/faults", json={"kind": "slow", "share": 1, "delay_s": 200})
    answer = faulty.post(CHAT, json=BODY)
    assert answer.json()["usage"]["completion_tokens"] == 50
    # A delay of 200 s in simulated time is 0.2 s at a speed-up of 1000.
    assert answer.elapsed.total_seconds() >= 0.2
    assert state(faulty)["met"]["slow"] == met + 1


def test_the_crash_fault_ends_the_process(tmp_path):
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "weft_gateway.cli",
        "bench",
        "replica",
        "--port",
        str(port),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"

        def ready() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"{url}/health", trust_env=False).status_code == 200
            return False

        until(ready, "the replica has not started")
        with pytest.raises(httpx.HTTPError):
            httpx.post(
                url + CHAT, json=BODY, headers={"x-simulated-fault": "crash"}, trust_env=False
            )
        assert process.wait(20) == CRASHED
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--preset", "9b-abacus"], "9b-abacus"),
        (["--speed-up", "0"], "--speed-up"),
        (["--policy", "nonsense"], "nonsense"),
        (["--scheduler", "fancy"], "fancy"),
    ],
)
def test_invalid_options_are_refused(tmp_path, options, named):
    with pytest.raises(NotReady, match=named), simulated_replica(tmp_path, *options):
        pass


def test_the_replica_can_use_the_vllm_scheduler(tmp_path):
    with simulated_replica(tmp_path, "--scheduler", "vllm", "--speed-up", "1000") as url:
        answers = [httpx.post(url + CHAT, json=BODY, headers={"x-weft-call": n}, trust_env=False)
                   for n in "ab"]  # fmt: skip
        reports = [CallReport.from_json(a.headers["x-weft-report"]) for a in answers]
        assert [r.output_tokens for r in reports] == [50, 50]
        assert reports[1].cached_tokens > 0
        assert httpx.get(f"{url}/simulated/state", trust_env=False).json()["violations"] == []


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gateway")
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        urls = [
            stack.enter_context(simulated_replica(folder, "--speed-up", "100")) for _ in range(2)
        ]
        serve = [sys.executable, "-m", "weft_gateway.cli", "serve", "--port", str(port)]
        serve += [part for url in urls for part in ("--replica", url)]
        stack.enter_context(running(serve, f"{base}/health", folder / "gateway.log"))
        yield base, urls


def test_the_gateway_reads_the_reports(gateway):
    base, _ = gateway
    headers = {"x-weft-program": "run-1"}
    with openai.OpenAI(base_url=f"{base}/v1", api_key="none", default_headers=headers) as client:
        service = [0.0]
        for stream in (False, True, False):
            answer = client.chat.completions.create(**BODY, stream=stream)
            for _ in answer if stream else ():
                pass
            # The API key determines the tenant of the program.
            key = {"authorization": "Bearer none"}
            program = httpx.get(f"{base}/v1/sessions/run-1", headers=key, trust_env=False).json()
            service.append(program["service_s"])
    assert service == sorted(set(service)), "the program's service did not grow with each call"
    assert httpx.get(f"{base}/weft/state", trust_env=False).json()["table"]["violations"] == []


def test_the_gateway_switches_the_policy(gateway):
    base, urls = gateway
    assert httpx.post(f"{base}/weft/policy", json={"policy": "atlas"}, trust_env=False).json()[
        "applied"
    ]
    for url in urls:
        (engine,) = httpx.get(f"{url}/weft/state", trust_env=False).json()["engines"]
        assert engine["policy"] == "atlas"


def test_the_gateway_serves_calls_when_a_replica_fails_some(gateway):
    base, urls = gateway
    fault = {"kind": "cut", "share": 0.4, "seed": 2}
    httpx.post(f"{urls[0]}/simulated/faults", json=fault, trust_env=False)
    with httpx.Client(base_url=base, timeout=30, trust_env=False) as client:
        statuses = [client.post(CHAT, json=BODY).status_code for _ in range(30)]
    httpx.delete(f"{urls[0]}/simulated/faults", trust_env=False)
    assert statuses.count(200) >= 15
    table = httpx.get(f"{base}/weft/state", trust_env=False).json()["table"]
    assert table["violations"] == []
    assert sum(table["in_flight"].values()) == 0


def test_the_replica_lists_its_answers_by_their_ids(replica, tmp_path):
    replica.delete("/simulated/calls")
    answer = replica.post(CHAT, json=BODY).json()
    (listed,) = replica.get("/simulated/calls").json()["calls"]
    assert listed["id"] == answer["id"]
    assert listed["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert listed["cached_tokens"] == answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert listed["service_s"] > 0
    assert replica.delete("/simulated/calls").json() == {"calls": []}
    with simulated_replica(tmp_path, "--speed-up", "1000") as url:
        ids = {httpx.post(url + CHAT, json=BODY, trust_env=False).json()["id"] for _ in range(3)}
    assert len(ids) == 3
    assert answer["id"] not in ids


def test_load_metrics_have_the_names_of_vllm(replica):
    text = replica.get("/metrics").text
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert f'vllm:{name}{{engine="0",model_name="simulated"}} 0' in text
