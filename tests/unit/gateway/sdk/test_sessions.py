"""A program from its client's side."""

import subprocess
import sys

import httpx
import pytest
from support.scripted_server import answer_frames, scripted
from weft import Session, SessionError
from weft.sessions import with_version


def server_of_sessions(asked):
    if asked.path == "/v1/sessions":
        return 201, {"id": asked.json.get("id", "sess-made")}
    if asked.method == "DELETE":
        return 200, {"deleted": True}
    return answer_frames("Hello.")


ASK = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True}
LIFE = [("POST", "/v1/sessions"), ("POST", "/v1/chat/completions"), ("DELETE", "/v1/sessions/{}")]


def life(server):
    return [(asked.method, asked.path) for asked in server.asked]


def expected(name):
    return [(method, path.format(name)) for method, path in LIFE]


def test_with_starts_marks_and_ends():
    with scripted(server_of_sessions) as server:
        with Session(server.url, api_key="key") as s:
            assert s.id == "sess-made"
            list(s.openai(thread="t1").chat.completions.create(**ASK))
        assert life(server) == expected("sess-made")
        assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer key"] * 3
        headers = server.asked[1].headers
        assert (headers["x-weft-program"], headers["x-weft-thread"]) == ("sess-made", "t1")


@pytest.mark.anyio
async def test_async_with_does_the_same():
    with scripted(server_of_sessions) as server:
        async with Session(f"{server.url}/v1/", id="my own/1", metadata={"a": 1}) as s:
            stream = await s.async_openai().chat.completions.create(**ASK)
            assert [call async for call in s.tool_calls(stream)] == []
        assert life(server) == expected("my%20own%2F1")
        assert server.asked[0].json == {"id": "my own/1", "metadata": {"a": 1}}


def test_options_of_the_client_are_the_callers():
    with scripted(server_of_sessions) as server, Session(server.url) as s:
        client = s.openai(default_headers={"x-own": "1"}, max_retries=7)
        assert client.max_retries == 7
        list(client.chat.completions.create(**ASK))
        headers = server.asked[-1].headers
        assert (headers["x-own"], headers["x-weft-program"]) == ("1", "sess-made")


def test_an_error_inside_ends_the_program_too_and_is_the_one_that_is_seen():
    with scripted(server_of_sessions) as server:
        with pytest.raises(ZeroDivisionError), Session(server.url):
            1 / 0  # noqa: B018
        assert life(server)[-1] == ("DELETE", "/v1/sessions/sess-made")


def test_a_session_that_is_kept_is_not_ended():
    with scripted(server_of_sessions) as server:
        with Session(server.url, keep=True):
            pass
        assert life(server) == [("POST", "/v1/sessions")]


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_server_without_sessions_still_gets_marked_calls(status):
    with scripted(lambda asked: (status, {})) as server:
        with Session(server.url) as s:
            assert s.headers["x-weft-program"].startswith("sess-")
        assert life(server) == [("POST", "/v1/sessions")]


def test_a_refusal_is_an_error():
    refused = pytest.raises(SessionError, match="who")
    with scripted(lambda asked: (401, {"error": "who?"})) as server, refused, Session(server.url):
        raise AssertionError("entered")


@pytest.mark.parametrize("answer", [[], {}, {"id": 7}, {"id": ""}, "x"])
def test_an_answer_that_is_no_session_is_an_error(answer):
    refused = pytest.raises(SessionError, match="not a session")
    with scripted(lambda asked: (200, answer)) as server, refused, Session(server.url):
        raise AssertionError("entered")


def test_a_server_that_is_away_at_the_start_is_an_error():
    with scripted(server_of_sessions) as server:
        pass
    with pytest.raises(httpx.ConnectError), Session(server.url):
        raise AssertionError("entered")


def test_a_server_that_is_away_at_the_end_is_not():
    with scripted(server_of_sessions) as server:
        s = Session(server.url).__enter__()
    s.__exit__(None, None, None)


def test_nothing_is_marked_before_the_start():
    with pytest.raises(RuntimeError, match="with"):
        Session("http://localhost").openai()


@pytest.mark.parametrize("name", ["", " a", "a\n", "ä", "x" * 257])
def test_a_name_that_no_header_carries(name):
    with pytest.raises(ValueError, match="printable"):
        Session("http://localhost", id=name)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/v1/", "http://h:1/v1"),
        ("https://h/p/one/v1", "https://h/p/one/v1"),
        ("https://h/weft", "https://h/weft/v1"),
    ],
)
def test_addresses(given, used):
    assert with_version(given) == used


@pytest.mark.parametrize("given", ["localhost:8080", "ftp://h", "", "http://"])
def test_what_is_no_address(given):
    with pytest.raises(ValueError, match="base_url"):
        with_version(given)


SERVERS = ("fastapi", "uvicorn", "uvloop", "httptools", "redis", "prometheus_client", "orjson",
           "pydantic_settings", "typer", "rich", "click", "torch", "vllm", "openai")  # fmt: skip


def test_it_needs_nothing_of_the_server():
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({SERVERS!r})); import weft; "
        "own = {m for m in sys.modules if m.startswith('weft_')} - {'weft_gateway'}; "
        "assert own and all(m.startswith('weft_gateway.overlap') for m in own), own"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
