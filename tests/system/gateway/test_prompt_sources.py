"""Receipts say where the tokens of each prompt came from: 2,000 calls of programs in three APIs,
half of them without a session, with injected causes of misses, through a gateway and two engines
with real prefix caches.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from copy import copy
from random import Random
from typing import Any

import pytest
from support.block_cache import SAID, BlockCache
from typer.testing import CliRunner
from weft_gateway.cli import app
from weft_gateway.engine.engine_request import program_digest
from weft_gateway.model import ProgramKey
from weft_gateway.programs.identity import tenant_of
from weft_gateway.programs.prompts import Prompts

pytestmark = [pytest.mark.system, pytest.mark.anyio]

KEYS = ("own", "theirs")
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
DATE = "Today is Friday, 2026-11-{:02}."


def text(rng: Random, size: int) -> str:
    return " ".join(rng.choices(WORDS, k=max(1, size // 6)))


class Program:
    """A conversation, and how the next call breaks its prefix."""

    def __init__(self, name: str, rng: Random) -> None:
        self.name, self.rng = name, rng
        self.form = rng.choice(["chat", "messages", "responses"])
        self.day = 1
        # A billing line inside the system prompt, or at its beginning, where vLLM drops it.
        self.cch = rng.choice(["Preface\n", ""]) + "x-anthropic-billing-header: cch=1;\n"
        self.system = f"You are {name}.\n" + "\n".join(text(rng, 80) for _ in range(20))
        self.tools = [
            {"name": f"tool_{n}", "description": text(rng, 200), "input_schema": {"type": "object"}}
            for n in range(6)
        ]
        size = rng.choice([200, 200, 2500])
        self.messages = [("user", text(rng, size)) for _ in range(1)]
        self.size = size
        self.salt = ""
        self.replica = ""
        # What has happened since the last call, without the program's doing.
        self.pending = ""
        self.calls = 0
        # Half of the programs are found by lineage. session: as the gateway calls it.
        self.named = rng.random() < 0.5
        self.session = name

    def goes_on(self) -> None:
        for _ in range(self.rng.randint(1, 2)):
            self.messages += [("assistant", SAID), ("user", text(self.rng, self.size))]

    def body(self) -> tuple[str, dict[str, Any]]:
        head = f"{self.cch}{self.system}\n{DATE.format(self.day)}"
        body: dict[str, Any] = {"model": "tiny", "tools": self.tools, "weft": {}}
        turns = [{"role": role, "content": said} for role, said in self.messages]
        if self.replica:
            body["weft"] = {"replica": self.replica}
        if self.salt:
            body["cache_salt"] = self.salt
        if self.form == "chat":
            return "/v1/chat/completions", {
                **body,
                "messages": [{"role": "system", "content": head}, *turns],
            }
        if self.form == "responses":
            return "/v1/responses", {**body, "instructions": head, "input": turns, "store": False}
        parts: list[dict[str, Any]] = [
            {"role": turn["role"], "content": [{"type": "text", "text": turn["content"]}]}
            for turn in turns
        ]
        # As Claude Code marks the end of its prompts.
        parts[-1]["content"][0]["cache_control"] = {"type": "ephemeral"}
        return "/v1/messages", {**body, "system": head, "messages": parts, "max_tokens": 9}

    def aside(self) -> Program:
        """Return a call that changes nothing: a sub-agent with the same session, another question
        about the same context, or a step back.
        """
        other = copy(self)
        kind = self.rng.choice(["agent", "question", "back"])
        question = ("user", text(self.rng, self.size))
        if kind == "agent":
            other.system, other.messages = f"You help {self.name}.", [question]
        elif kind == "question":
            other.messages = [*self.messages[:-1], question]
        else:
            other.messages = [*self.messages[:-3], question]
        return other

    # Each injection returns the cause and the kind that the receipt should name.

    def edited(self) -> tuple[str, str]:
        at = self.rng.randrange(len(self.messages) // 2)
        role, said = self.messages[at]
        self.messages[at] = role, "New: " + said[:-3]
        return "changed", "edited history"

    def compacted(self) -> tuple[str, str]:
        kept = self.messages[-3:]
        self.messages = [self.messages[0], ("assistant", SAID), ("user", text(self.rng, 1500))]
        self.messages += [("assistant", SAID), *kept]
        return "changed", "compaction"

    def reordered(self) -> tuple[str, str]:
        self.tools = [*self.tools[1:], self.tools[0]]
        return "changed", "tools reordered"

    def dated(self) -> tuple[str, str]:
        self.day += 1
        return "changed", "date or counter"

    def billed(self) -> tuple[str, str]:
        """A billing line that the engine drops changes no prompt. Here, instructions keep it, as
        vLLM's prompts for gpt-oss do.
        """
        start = self.cch.partition("x-")[0]
        self.cch = f"{start}x-anthropic-billing-header: cch={self.rng.randrange(10**6)};\n"
        seen = start or self.form == "responses"
        return ("changed", "billing line") if seen else ("", "")

    def instructed(self) -> tuple[str, str]:
        self.system += "\n" + text(self.rng, 40)
        return "changed", "system prompt"

    def salted(self) -> tuple[str, str]:
        self.salt = f"salt {self.rng.randrange(10**6)}"
        return "salt", ""

    def moved(self) -> tuple[str, str]:
        self.replica = "r1" if self.replica == "r0" else "r0"
        return "moved", ""


CHANGES = ("edited", "compacted", "reordered", "dated", "billed", "instructed", "salted", "moved")


@pytest.mark.slow
async def test_causes_of_misses_are_right_and_the_sources_add_up(engine: Any, weft: Any) -> None:
    rng = Random(38)
    caches = {"r0": BlockCache(400_000), "r1": BlockCache(400_000)}
    sessions: set[str] = set()
    truth: dict[str, tuple[Program, str, str]] = {}
    async with (
        engine(script=caches["r0"].script) as a,
        engine(script=caches["r1"].script) as b,
        weft(a, b) as gateway,
    ):

        async def call(program: Program, cause: str, kind: str) -> None:
            path, body = program.body()
            request = f"{program.name}-{program.calls}"
            program.calls += 1
            truth[request] = program, cause, kind
            headers = {"x-request-id": request}
            if program.named:
                headers["x-weft-program"] = program.name
            got = await gateway.client.post(path, json=body, headers=headers)
            assert got.status_code == 200, got.text
            program.session = got.headers["x-weft-program"]
            sessions.add(program.session)
            program.pending = ""

        thief = Program("thief", rng)
        thief.replica, thief.named = "r0", True
        await call(thief, "", "")
        thief_digest = program_digest(ProgramKey(tenant_of("own"), "thief"))
        live: list[Program] = []
        while len(truth) < 2000:
            if len(live) < 40:
                program = Program(f"p{len(truth)}", rng)
                program.replica = rng.choice(["r0", "r1"])
                live.append(program)
                await call(program, "", "")
                continue
            program = rng.choice(live)
            if program.calls > 12:
                live.remove(program)
                continue
            if rng.random() < 0.08 and not program.pending and len(program.messages) > 4:
                aside = program.aside()
                await call(aside, "", "")
                program.calls = aside.calls
                continue
            program.goes_on()
            cache = caches[program.replica]
            digest = program_digest(ProgramKey(tenant_of("own"), program.session))
            cause, kind = program.pending, ""
            event = rng.random()
            if cause:
                pass
            elif event < 0.35 and program.calls > 4 and len(program.messages) > 8:
                cause, kind = getattr(program, rng.choice(CHANGES))()
            elif event < 0.42:
                cache.take(cache.keys.get(digest, [])[rng.randrange(20) :], thief_digest)
                cause = "evicted"
            elif event < 0.45:
                lost = [
                    key for key in cache.keys.get(digest, []) if cache.cached.pop(key, None) == 0
                ]
                cache.host.update(lost)
            elif event < 0.455:
                cache.empty()
                for other in live:
                    if other.replica == program.replica:
                        other.pending = "expired"
                cause = "expired"
            await call(program, cause, kind)

        receipts = {}
        for name in sessions:
            story = (await gateway.client.get(f"/v1/sessions/{name}/story")).json()
            receipts |= {one["request_id"]: one for one in story["receipts"]}
            parts = [one["prompt"] for one in story["receipts"]]
            for source in ("cached", "loaded", "new", "again"):
                assert story["prompt"][source] == sum(part[source] for part in parts)
        metrics = (await gateway.client.get("/metrics")).text

    right, wrong = Counter[str](), []
    for request, (program, cause, kind) in truth.items():
        receipt = receipts[request]
        prompt = receipt["prompt"]
        report = caches[receipt["place"]["replica"]].reports[receipt["call"]]
        assert prompt["cached"] + prompt["loaded"] == report.cached_tokens
        assert prompt["loaded"] == report.loaded_tokens
        assert prompt["again"] == sum(one["tokens"] for one in prompt["cause"].values())
        sources = ("cached", "loaded", "new", "again")
        assert sum(prompt[name] for name in sources) == report.prompt_tokens
        found = max(prompt["cause"], key=lambda name: prompt["cause"][name]["tokens"], default="")
        about = prompt["cause"].get(found, {})
        good = found == cause and about.get("kind", "") == kind
        if good and cause == "evicted":
            good = about["by"] == "thief"
        right[f"{cause} {kind}"] += good
        if not good:
            wrong.append((request, program.form, cause, kind, prompt, program.calls))
    print(right)
    assert len(right) == 11
    assert min(right.values()) > 20, (right, wrong[:5])
    share = sum(right.values()) / len(truth)
    assert share >= 0.98, (share, right, wrong[:5])
    total = sum(
        cache.reports[call].prompt_tokens for cache in caches.values() for call in cache.reports
    )
    lines = [
        line for line in metrics.splitlines() if line.startswith("weft_prompt_source_tokens_t")
    ]
    assert sum(float(line.rpartition(" ")[2]) for line in lines) == total


async def test_why_lists_the_misses_of_a_session(engine: Any, weft: Any) -> None:
    cache, rng = BlockCache(400), Random(1)
    program = Program("mine", rng)
    program.form, program.cch = "chat", ""
    async with engine(script=cache.script) as stub, weft(stub) as gateway:

        async def call(**more: Any) -> dict[str, Any]:
            program.goes_on()
            path, body = program.body()
            got = await gateway.client.post(
                path, json=body | more, headers={"x-weft-program": "mine"}
            )
            assert got.status_code == 200
            name = got.headers["x-request-id"]
            receipt = (await gateway.client.get(f"/v1/receipts/{name}")).json()
            found: dict[str, Any] = receipt["prompt"]
            return found

        async def why(*options: str) -> str:
            arguments = ["why", "mine", "--gateway", gateway.url, *options]
            environment = {"OPENAI_API_KEY": "own", "COLUMNS": "200"}
            done = await asyncio.to_thread(CliRunner().invoke, app, arguments, env=environment)
            return done.output

        assert "404" not in await why()
        first = await call()
        assert (first["cached"], first["again"], first["cause"]) == (0, 0, {})
        assert first["text"] == f"0 cached, {first['new']} new, 0 computed again"
        assert "Nothing was computed again" in await why()
        # Another key's program takes the whole cache.
        large = {"model": "tiny", "messages": [{"role": "user", "content": "x" * 40_000}]}
        theirs = {"authorization": "Bearer theirs", "x-weft-program": "mine"}
        await gateway.client.post("/v1/chat/completions", json=large, headers=theirs)
        second = await call()
        lost = second["cause"].pop("evicted")
        assert lost["tokens"] == second["again"]
        assert (lost["by"], lost["who"]) == (None, "capacity")
        assert lost["text"] == "evicted by a program of another key, 1 s before"
        program.day += 1
        third = await call()
        assert third["cause"]["changed"]["path"] == "messages[0]"
        # The program's own idle end: its blocks were given up before others took them.
        gateway.parts.prompts.ended(ProgramKey(tenant_of("own"), "mine"))
        cache.take([*cache.cached], "")
        fourth = await call()
        assert fourth["cause"]["expired"]["why"] == "the session had ended, idle for too long"
        # The retention that the client asked for has ended.
        cache.take([*cache.cached], "")
        cache.hints = ("weft_retain=expired: its retention time has passed",)
        fifth = await call()
        assert fifth["cause"]["expired"]["why"] == "its retention had ended"
        # Engines count the prompt of two answers twice.
        cache.hints, cache.answers = (), 2
        cache.take([*cache.cached], "")
        sixth = await call(n=2)
        assert sixth["again"] > 1.8 * fifth["again"]
        shown = await why()
    lines = shown.splitlines()
    assert lines[0].startswith("6 calls, ")
    rows = [line.split(maxsplit=5) for line in lines[2:7]]
    assert [row[4] for row in rows] == ["capacity", "client", "operator", "operator", "capacity"]
    assert int(rows[0][2].replace(",", "")) == second["again"]
    assert rows[1][5].startswith("changed at messages[0], byte")
    assert rows[1][5].endswith("date or counter; repair: date_line")
    assert any(line.startswith("changed: ") and line.endswith("calls: 1") for line in lines)


async def test_engines_without_the_plugin(engine: Any, weft: Any) -> None:
    """They report no evictions, and some not even what was cached."""
    cached: list[int | None] = [None, 0, 96, 0]

    async def stock(wire: Any, _: Any) -> None:
        usage: dict[str, Any] = {"prompt_tokens": 500, "completion_tokens": 1}
        if (tokens := cached.pop(0)) is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": tokens}
        await wire.plain({"choices": [{"message": {"content": SAID}}], "usage": usage})

    found = []
    async with engine(script=stock, weft=False) as stub, weft(stub) as gateway:
        for _ in range(4):
            body = {"model": "tiny", "messages": [{"role": "user", "content": "so " * 600}]}
            headers = {"x-weft-program": "run"}
            got = await gateway.client.post("/v1/chat/completions", json=body, headers=headers)
            name = got.headers["x-request-id"]
            receipt = (await gateway.client.get(f"/v1/receipts/{name}")).json()
            found.append(receipt["prompt"])
    assert found[:2] == [None, None]
    assert (found[2]["cached"], found[2]["new"]) == (96, 404)
    assert found[3]["cause"]["evicted"]["text"] == "evicted"
    assert found[3]["again"] == 500


async def test_a_fault_in_the_comparison_fails_no_call(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = BlockCache(400)
    async with engine(script=cache.script) as stub, weft(stub) as gateway:
        monkeypatch.setattr(Prompts, "find", lambda *_: 1 // 0)
        body = {"messages": [{"role": "user", "content": "Hello"}]}
        assert (await gateway.call(body=body)).status_code == 200
    assert "an observer of call" in caplog.text
