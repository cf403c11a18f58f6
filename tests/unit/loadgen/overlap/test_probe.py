"""The measurement behind the tools' times, against an obedient engine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from support.serving import client_of
from weft_bench.overlap.probe import Machine, Probe, ProbeError
from weft_bench.overlap.prompts import ReadyTurn

pytestmark = pytest.mark.anyio
TURN = ReadyTurn(({"role": "user", "content": "x"},), (), '[{"name": "a", "arguments": {}}]')


class Engine:
    """Counts two tokens per word plus ten, and writes the forced text."""

    def __init__(self, context=8192, text=None, status=200):
        self.context, self.text, self.status = context, text, status
        self.bodies: list[dict] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "m", "max_model_len": self.context}]})
        body = json.loads(request.content)
        self.bodies.append(body)
        count = sum(len(message["content"].split()) for message in body["messages"])
        text = self.text or body.get("structured_outputs", {}).get("choice", ["free"])[0]
        usage = {"prompt_tokens": 10 + 2 * count, "completion_tokens": len(text)}
        choices = [{"message": {"content": text}}]
        return httpx.Response(self.status, json={"usage": usage, "choices": choices})


@asynccontextmanager
async def probe(engine: Engine) -> AsyncIterator[Probe]:
    async with client_of(engine) as client:
        yield Probe(client)


async def test_median_prompt_is_a_third_of_the_unreserved_context():
    engine = Engine(8192)
    async with probe(engine) as measuring:
        found = await measuring.machine(2192)
    assert (found.model, found.context, found.unit) == ("m", 8192, 2000)
    assert found.words_a_token == pytest.approx(0.5)
    assert found.unit_words == pytest.approx(1000)
    longest = max(len(body["messages"][0]["content"].split()) for body in engine.bodies)
    assert longest == pytest.approx(1500, abs=2)


async def test_prompts_of_a_probe_share_no_prefix():
    engine = Engine()
    async with probe(engine) as measuring:
        await measuring.machine(2192)
    texts = [b["messages"][0]["content"] for b in engine.bodies if b["max_tokens"] == 1]
    starts = {tuple(text.split()[:8]) for text in texts if " " in text}
    assert len(starts) == len([text for text in texts if " " in text])


async def test_forced_answer_is_timed_after_its_grammar_is_compiled():
    engine = Engine()
    async with probe(engine) as measuring:
        tokens, seconds = await measuring.answer("m", TURN)
    assert tokens == len(TURN.answer)
    assert seconds > 0
    assert [body["max_tokens"] for body in engine.bodies] == [1, len(TURN.answer) + 1]
    assert engine.bodies[1]["structured_outputs"] == {"choice": [TURN.answer]}


@pytest.mark.parametrize(
    ("engine", "message"),
    [(Engine(text="no"), "differs from the forced calls"), (Engine(status=400), "refused")],
)
async def test_disobedient_engine_is_reported(engine, message):
    async with probe(engine) as measuring:
        with pytest.raises(ProbeError, match=message):
            await measuring.answer("m", TURN)


async def test_too_short_context_is_reported():
    async with probe(Engine(4096)) as measuring:
        with pytest.raises(ProbeError, match="too short"):
            await measuring.machine(5120)


def test_a_prefill_grows_by_tokens_and_their_square():
    machine = Machine("m", 8192, 2000, 1.0, 1e-5, 1e-9, 0.002)
    assert machine.prefill_s(1000) == pytest.approx(0.01 + 0.001)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (lambda n: 2e-5 * n + 3e-9 * n * n, (2e-5, 3e-9)),
        (lambda n: 2e-5 * n, (2e-5, 0.0)),
        # Noise must not make a longer prompt cheaper.
        (lambda n: 0.1, None),
        (lambda n: 3e-9 * n * n - 1e-6 * n, None),
    ],
)
def test_fit_never_falls(seconds, expected):
    from weft_bench.overlap.probe import fit

    found = fit([(n, seconds(n)) for n in (1000, 2000, 3000)])
    assert min(found) >= 0
    if expected is not None:
        assert found == pytest.approx(expected, abs=1e-12)
