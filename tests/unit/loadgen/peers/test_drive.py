"""Playing programs through a small front."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from support.serving import serving
from weft_bench.peers.drive import Script, drive
from weft_bench.peers.fronts import SESSION_HEADERS, SLO_HEADER, Front
from weft_bench.peers.turns import UserTurn
from weft_bench.stack.proxies import OURS
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import TraceCall


class Server:
    """A front. Answers each body except `no` and `lost`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes, dict]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response | None:
        path = request.url.raw_path.decode()
        kept = (*SESSION_HEADERS, SLO_HEADER)
        sessions = {name: v for name, v in request.headers.items() if name in kept}
        self.asked.append((path, request.content, sessions))
        if request.content == b"lost":
            return None
        if request.content == b"no":
            return httpx.Response(503, text="too busy")
        return httpx.Response(200, json={"id": f"id-{len(self.asked)}"})


@pytest.fixture
def server():
    return Server()


def script(bodies: list[bytes], blocks: list[list[int]]) -> Script:
    ready = tuple(ReadyCall(TraceCall(prompt_ids=(1,)), 1, 1) for _ in bodies)
    program = ReadyProgram("p", ready, cut=False, trimmed=False)
    return Script(program, bodies, blocks, [0.0] * len(bodies), 0.0, 1.0, False)


async def played(server, scripts, **options):
    front = Front("f", OURS, **options)
    ticks: list[int] = []
    async with serving(server) as url:
        found = await drive(url, front, scripts, "run", lambda: ticks.append(1))
    assert len(ticks) == len(found.calls)
    return found


@pytest.mark.anyio
async def test_each_program_has_one_session(server):
    found = await played(server, [script([b"a", b"b"], [[1], [1]]), script([b"c"], [[1]])])
    sessions = {body: headers["x-session-id"] for _, body, headers in server.asked}
    assert sessions[b"a"] == sessions[b"b"] != sessions[b"c"]
    assert all(
        len(set(headers.values())) == 1 and tuple(headers) == SESSION_HEADERS
        for _, _, headers in server.asked
    )
    assert [(c.program, c.number) for c in found.calls] == [(0, 0), (0, 1), (1, 0)]
    assert len({c.id for c in found.calls}) == 3
    assert found.duration_s >= max(c.answered_s for c in found.calls)


@pytest.mark.anyio
async def test_calls_without_a_key_carry_no_session_header(server):
    await played(server, [script([b"a"], [[1]])], keyed=False)
    assert server.asked == [("/v1/chat/completions", b"a", {})]


@pytest.mark.anyio
async def test_end_of_a_session_is_reported_to_fronts_that_support_it(server):
    await played(server, [script([b"a"], [[1]])], ends=True)
    assert [path for path, _, _ in server.asked] == [
        "/v1/chat/completions",
        "/finish_session?session_id=run-0",
    ]


@pytest.mark.anyio
async def test_known_share_counts_answered_prompts_of_the_same_program(server):
    calls = [[1, 2], [1, 2, 3, 4], [1, 9]]
    found = await played(server, [script([b"a"] * 3, calls), script([b"a"], [[1, 2]])])
    shares = [call.known_share for call in found.calls]
    assert shares == [0.0, 0.5, 0.5, 0.0]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "error"), [(b"no", "503: too busy"), (b"lost", "closed before the answer")]
)
async def test_program_stops_after_an_error(server, body, error):
    found = await played(server, [script([b"a", body, b"c"], [[1]] * 3)])
    assert [call.error.endswith(error) for call in found.calls] == [False, True]
    assert b"c" not in [asked for _, asked, _ in server.asked]


@pytest.mark.anyio
async def test_chats_have_no_session(server):
    chat = replace(script([b"a"], [[1]]), chat=True)
    await played(server, [chat], ends=True)
    assert server.asked == [("/v1/chat/completions", b"a", {})]


@pytest.mark.anyio
async def test_calls_carry_the_class_of_their_turn(server):
    turns = (UserTurn(0, 1, 1.0, 2.0, "turn-3"), UserTurn(2, 2, 1.0, 2.0, "turn-9"))
    await played(server, [replace(script([b"a", b"b", b"c"], [[1]] * 3), turns=turns)])
    assert [h[SLO_HEADER] for _, _, h in server.asked] == ["turn-3", "turn-3", "turn-9"]
