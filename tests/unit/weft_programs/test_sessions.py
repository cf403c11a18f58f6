"""Sessions of the Python client."""

import subprocess
import sys

import httpx
import pytest
from support.scripted_server import answer_frames, scripted
from weft_programs import Session, SessionError
from weft_programs.sessions import with_version


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


def test_with_block_starts_names_and_ends_the_program():
    with scripted(server_of_sessions) as server:
        with Session(server.url, api_key="key") as s:
            assert s.id == "sess-made"
            list(s.openai(thread="t1").chat.completions.create(**ASK))
        assert life(server) == expected("sess-made")
        assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer key"] * 3
        headers = server.asked[1].headers
        assert (headers["x-weft-program"], headers["x-weft-thread"]) == ("sess-made", "t1")


@pytest.mark.anyio
async def test_async_with_block_starts_names_and_ends_the_program():
    with scripted(server_of_sessions) as server:
        async with Session(f"{server.url}/v1/", id="my own/1", metadata={"a": 1}) as s:
            stream = await s.async_openai().chat.completions.create(**ASK)
            assert [call async for call in s.tool_calls(stream)] == []
        assert life(server) == expected("my%20own%2F1")
        assert server.asked[0].json == {"id": "my own/1", "metadata": {"a": 1}}


def test_deadline_and_class_reach_the_gateway():
    goal = {"slo": "report", "deadline_s": 60.0}
    with scripted(server_of_sessions) as server, Session(server.url, **goal) as s:
        list(s.openai().chat.completions.create(**ASK))
        assert server.asked[0].json == goal


def test_client_options_pass_to_the_openai_client():
    with scripted(server_of_sessions) as server, Session(server.url) as s:
        client = s.openai(default_headers={"x-own": "1"}, max_retries=7)
        assert client.max_retries == 7
        list(client.chat.completions.create(**ASK))
        headers = server.asked[-1].headers
        assert (headers["x-own"], headers["x-weft-program"]) == ("1", "sess-made")


def test_error_in_the_block_ends_the_program_and_is_raised():
    with scripted(server_of_sessions) as server:
        with pytest.raises(ZeroDivisionError), Session(server.url):
            1 / 0  # noqa: B018
        assert life(server)[-1] == ("DELETE", "/v1/sessions/sess-made")


def test_kept_session_is_not_ended():
    with scripted(server_of_sessions) as server:
        with Session(server.url, keep=True):
            pass
        assert life(server) == [("POST", "/v1/sessions")]


@pytest.mark.parametrize("status", [404, 405, 501])
def test_server_without_sessions_gets_named_calls(status):
    with scripted(lambda asked: (status, {})) as server:
        with Session(server.url) as s:
            assert s.headers["x-weft-program"].startswith("sess-")
        assert life(server) == [("POST", "/v1/sessions")]


def test_refused_session_is_an_error():
    refused = pytest.raises(SessionError, match="who")
    with scripted(lambda asked: (401, {"error": "who?"})) as server, refused, Session(server.url):
        raise AssertionError("entered")


@pytest.mark.parametrize("answer", [[], {}, {"id": 7}, {"id": ""}, "x"])
def test_invalid_session_answer_is_an_error(answer):
    refused = pytest.raises(SessionError, match="not a session")
    with scripted(lambda asked: (200, answer)) as server, refused, Session(server.url):
        raise AssertionError("entered")


def test_unreachable_server_at_the_start_is_an_error():
    with scripted(server_of_sessions) as server:
        pass
    with pytest.raises(httpx.ConnectError), Session(server.url):
        raise AssertionError("entered")


def test_unreachable_server_at_the_end_is_no_error():
    with scripted(server_of_sessions) as server:
        s = Session(server.url).__enter__()
    s.__exit__(None, None, None)


def test_client_before_the_start_is_an_error():
    with pytest.raises(RuntimeError, match="with"):
        Session("http://localhost").openai()


@pytest.mark.parametrize("name", ["", " a", "a\n", "ä", "x" * 257])
def test_name_that_is_no_header_value_is_refused(name):
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
def test_version_is_added_to_base_urls(given, used):
    assert with_version(given) == used


@pytest.mark.parametrize("given", ["localhost:8080", "ftp://h", "", "http://"])
def test_invalid_base_url_is_refused(given):
    with pytest.raises(ValueError, match="base_url"):
        with_version(given)


SERVERS = ("fastapi", "uvicorn", "uvloop", "httptools", "redis", "prometheus_client", "orjson",
           "pydantic_settings", "typer", "rich", "click", "torch", "vllm", "openai")  # fmt: skip


def test_client_imports_no_server_packages():
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({SERVERS!r})); import weft_programs; "
        "own = {m.partition('.')[0] for m in sys.modules if m.startswith('weft')}; "
        "assert own == {'weft_programs'}, own"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
