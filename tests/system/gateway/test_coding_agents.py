"""Coding agents, set up as their guides say, work in a terminal and in a small context.

The demo model's answers are random, so the engine's answers are scripted here. The agents and the
gateway are real. `tests/system/real/test_agents.py` has them with a real engine.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import agents
from support.answers import answer
from support.emulated import EmulatedEngine
from support.stack import SECRET
from support.waiting import RUN_S

pytestmark = [pytest.mark.system, pytest.mark.anyio]

KEY = {"authorization": f"Bearer {agents.KEY}"}
# Nearly the whole context that the guides set, 49,152 tokens.
FULL = 47_000

# How long a call is held, seconds: some agents end after minutes of silence.
HELD_S = float(os.environ.get("AGENTS_HELD_S", "3"))

# How each agent begins a conversation without a terminal, how it continues this, and how it begins
# one in a terminal.
AGENTS = {
    "codex": (
        agents.codex,
        ("exec", "--skip-git-repo-check"),
        ("exec", "--skip-git-repo-check", "resume", "--last"),
        (),
    ),
    "claude_code": (
        agents.claude_code, ("-p",), ("-p", "--continue"), ("--permission-mode", "default"),
    ),
    "opencode": (agents.opencode, ("run",), ("run", "--continue"), ("--prompt",)),
}  # fmt: skip

each_agent = pytest.mark.parametrize("name", AGENTS)


@pytest.fixture
def set_up(tmp_path: Path) -> Callable[[str, str], agents.Agent]:
    """Return `set_up(name, url)`, which sets an agent up in a new project."""

    def make(name: str, url: str) -> agents.Agent:
        folder = tmp_path / "project"
        folder.mkdir()
        (folder / "hello.py").write_text('print("Hello")\n')
        found: agents.Agent = AGENTS[name][0](url, tmp_path / "home", folder)
        return found

    return make


async def programs(gateway: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await gateway.client.get("/v1/sessions", headers=KEY)).json()[
        "data"
    ]
    return found


@each_agent
async def test_an_agent_answers_in_its_terminal(
    engine: Any, weft: Any, set_up: Any, name: str
) -> None:
    """It asks for no sign-in, and shows the engine's answer."""

    async def script(wire: Any, request: Any) -> None:
        await wire.stream(*answer(request.target, "Forty-two.", 1_000))

    async with engine(script=script, models=("weft-demo",)) as stub, weft(stub) as gateway:
        agent = set_up(name, gateway.url)

        def talk() -> None:
            with agent.terminal(*AGENTS[name][3], "What is the answer?") as terminal:
                terminal.until(lambda: "Forty-two." in terminal.text, RUN_S, agent.sign_in)

        await asyncio.to_thread(talk)
        found = await programs(gateway)
        assert found
        assert {program["errors"] for program in found} == {0}


@each_agent
async def test_an_agent_finishes_although_its_calls_are_held(
    engine: Any, weft: Any, until: Any, set_up: Any, name: str
) -> None:
    """Its first call stands in the engine's queue, while others are served. The later ones find no
    replica.
    """
    go = asyncio.Event()

    async def script(wire: Any, request: Any) -> None:
        if request.target == "/v1/completions":
            await wire.plain({"choices": []})
            return
        await go.wait()
        await wire.stream(*answer(request.target, "Forty-two.", 1_000))

    # As by default for half an hour: 15 s and 900 s.
    times = {"heartbeat_s": min(15.0, HELD_S / 6), "first_byte_timeout_s": max(2.0, HELD_S / 2)}
    async with (
        engine(script=script, models=("weft-demo",)) as stub,
        weft(stub, health_interval_s=0.5, **times) as gateway,
    ):
        agent = set_up(name, gateway.url)
        _, begin, proceed, _ = AGENTS[name]

        async def run(*arguments: str) -> None:
            result = await asyncio.to_thread(agent.run, *arguments, wait_s=HELD_S + RUN_S)
            assert result.status == 0, result.output
            assert "Forty-two." in result.output

        running = asyncio.create_task(run(*begin, "Begin."))
        await until(lambda: stub.requests or running.done())
        for _ in range(12):
            await asyncio.sleep(HELD_S / 12)
            got = await gateway.call("/v1/completions", body={"model": "weft-demo", "prompt": "x"})
            assert got.status_code == 200
        assert not running.done()
        go.set()
        await running
        (replica,) = gateway.parts.registry
        stub.healthy = False
        await until(lambda: not replica.circuit.alive)
        running = asyncio.create_task(run(*proceed, "Go on."))
        # The time begins with the first of its calls.
        await until(lambda: gateway.parts.disconnects._all or running.done())
        await asyncio.sleep(HELD_S)
        assert not running.done()
        stub.healthy = True
        await running
        assert {program["errors"] for program in await programs(gateway)} == {0}


@pytest.fixture
def emulated() -> Iterator[EmulatedEngine]:
    """A real vLLM without a model, with short answers."""
    few = json.dumps({"max_new_tokens": 64})
    engine = EmulatedEngine(
        ("--preset", "8b-h200", "--served-model-name", "weft-demo", "--max-model-len", "49152",
         "--override-generation-config", few),
    )  # fmt: skip
    engine.start()
    try:
        yield engine
    finally:
        os.killpg(engine.process.pid, signal.SIGCONT)
        engine.stop()


@pytest.mark.engine
async def test_held_agents_finish_on_an_emulated_engine(
    emulated: EmulatedEngine, weft: Any, until: Any, tmp_path: Path
) -> None:
    """All programs have begun. The emulated engine stops, and goes on as if nothing had been."""
    await asyncio.to_thread(emulated.wait)
    async with weft(emulated.url, engine_secret=SECRET, health_interval_s=2.0) as gateway:

        async def run(name: str, *arguments: str) -> None:
            folder = tmp_path / name / "project"
            folder.mkdir(parents=True, exist_ok=True)
            agent = AGENTS[name][0](gateway.url, tmp_path / name / "home", folder)
            got = await asyncio.to_thread(agent.run, *arguments, wait_s=HELD_S + RUN_S)
            # Random words reach the limit of the answer, which Claude Code reports as an error.
            assert got.status == 0 or "output token maximum" in got.output, got.output

        await asyncio.gather(*(run(name, *AGENTS[name][1], "Begin.") for name in AGENTS))
        begun = {program["id"]: program["calls"] for program in await programs(gateway)}
        os.killpg(emulated.process.pid, signal.SIGSTOP)
        (replica,) = gateway.parts.registry
        await until(lambda: not replica.circuit.alive)
        again = [
            asyncio.create_task(run(name, *AGENTS[name][2], "Go on.")) for name in AGENTS
        ]  # fmt: skip
        async with asyncio.timeout(RUN_S):
            while len(gateway.parts.live._open) < len(AGENTS):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await asyncio.sleep(HELD_S)
        assert not any(task.done() for task in again)
        os.killpg(emulated.process.pid, signal.SIGCONT)
        await asyncio.gather(*again)
        after = {program["id"]: program for program in await programs(gateway)}
        assert {after[name]["errors"] for name in begun} == {0}
        assert all(after[name]["calls"] > calls for name, calls in begun.items())


@each_agent
async def test_an_agent_compacts_before_the_context_is_full(
    engine: Any, weft: Any, set_up: Any, name: str
) -> None:
    """After an answer at the end of the context, it asks the model for a summary, and continues
    with this and without the answer.
    """
    answers = 0

    async def script(wire: Any, request: Any) -> None:
        nonlocal answers
        text = json.dumps(request.json)
        if "title" in text and not request.json.get("tools"):
            await wire.stream(*answer(request.target, '{"title": "A title"}', 100))
            return
        answers += 1
        used = FULL if answers == 1 else 1_000
        await wire.stream(*answer(request.target, f"answer-{answers}.", used))

    async with engine(script=script, models=("weft-demo",)) as stub, weft(stub) as gateway:
        agent = set_up(name, gateway.url)
        _, begin, proceed, _ = AGENTS[name]
        for arguments in (*begin, "Begin."), (*proceed, "Go on."):
            result = await asyncio.to_thread(agent.run, *arguments)
            assert result.status == 0, result.output
        last = json.dumps(stub.requests[-1].json)
        assert "answer-1." not in last
        assert "answer-2." in last
        (program,) = await programs(gateway)
        assert program["errors"] == 0


async def test_claude_code_does_not_repeat_a_call_with_a_wrong_key(
    engine: Any, weft: Any, set_up: Any
) -> None:
    async with (
        engine(models=("weft-demo",)) as stub,
        weft(stub, api_keys="another-key") as gateway,
    ):
        agent = set_up("claude_code", gateway.url)
        result = await asyncio.to_thread(agent.run, "-p", "Begin.")
        assert result.status != 0
        assert "Incorrect API key" in result.output
        metrics = (await gateway.client.get("/metrics")).text
        assert 'weft_errors_total{code="invalid_api_key"} 1.0\n' in metrics


LONG = (
    "This model's maximum context length is 2048 tokens. However, your prompt contains at least "
    "2049 input tokens, which exceeds this limit even without any output tokens. Please reduce the "
    "length of the input prompt. (parameter=input_tokens, value=2049)"
)
REFUSED = "temperature must be non-negative, got -3.0. (parameter=temperature, value=-3.0)"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("codex", LONG, "ran out of room in the model's context window"),
        ("codex", REFUSED, "temperature must be non-negative, got -3.0."),
        ("claude_code", LONG, "Prompt is too long"),
        ("claude_code", REFUSED, "temperature must be non-negative, got -3.0."),
    ],
)
async def test_an_agent_understands_that_the_engine_refuses_its_call(
    engine: Any, weft: Any, set_up: Any, name: str, text: str, said: str
) -> None:
    async def script(wire: Any, request: Any) -> None:
        error = {"message": text, "type": "BadRequestError", "param": None, "code": 400}
        await wire.plain({"error": error}, "400 Bad Request")

    async with engine(script=script, models=("weft-demo",)) as stub, weft(stub) as gateway:
        agent = set_up(name, gateway.url)
        result = await asyncio.to_thread(agent.run, *AGENTS[name][1], "Begin.")
        assert result.status == 1
        assert said in result.output
        assert "parameter=" not in result.output
