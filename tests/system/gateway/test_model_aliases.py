"""Further names of models, with the unmodified clients of both APIs."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest
from support.batches import chat, client_of, content, line, lines, run

pytestmark = [pytest.mark.system, pytest.mark.anyio]

ALIASES = "opus=tiny, claude-*=tiny,gpt-4o=other,lost=nowhere"
QUESTION: Any = [{"role": "user", "content": "Hello"}]


async def answer(wire: Any, request: Any) -> None:
    if request.target == "/v1/messages":
        said = {"type": "text", "text": request.json["model"]}
        usage = {"input_tokens": 1, "output_tokens": 1}
        found = {"id": "msg_1", "type": "message", "role": "assistant", "content": [said]}
        await wire.plain(found | {"model": request.json["model"], "usage": usage})
    elif request.target.endswith("count_tokens"):
        await wire.plain({"input_tokens": len(request.json["model"])})
    else:
        await chat(wire, request)


async def test_a_client_names_a_model_by_its_alias(engine: Any, weft: Any) -> None:
    async with (
        engine(script=answer) as one,
        engine(script=answer, models=("other",)) as two,
        weft(one, two, model_aliases=ALIASES) as gateway,
        client_of(gateway) as client,
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key="sk-a", max_retries=0) as claude,
    ):
        create = client.chat.completions.create
        long = [{"role": "user", "content": "word " * 1_000_000}]
        for name, served, messages in (
            ("opus", "tiny", QUESTION), ("gpt-4o", "other", QUESTION), ("opus", "tiny", long)
        ):  # fmt: skip
            # As with the official API, the answer names the model that has made it.
            assert (await create(model=name, messages=messages)).model == served
        told = await claude.messages.create(
            model="claude-opus-4-5-20251101", messages=QUESTION, max_tokens=5
        )
        assert told.model == "tiny"
        counted = await claude.messages.count_tokens(model="claude-haiku", messages=QUESTION)
        assert counted.input_tokens == len("tiny")
        assert {request.json["model"] for request in one.requests} == {"tiny"}
        assert {request.json["model"] for request in two.requests} == {"other"}
        for name in ("opus5", "lost"):
            with pytest.raises(openai.NotFoundError, match=name):
                await create(model=name, messages=QUESTION)

        listed = {model.id async for model in client.models.list()}
        assert listed == {"tiny", "other", "opus", "gpt-4o"}
        assert (await client.models.retrieve("claude-3")).id == "claude-3"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("lost")


async def test_batches_name_models_by_their_aliases(engine: Any, weft: Any) -> None:
    async with (
        engine(script=answer) as one,
        engine(script=answer, models=("other",)) as two,
        weft(one, two, model_aliases=ALIASES) as gateway,
        client_of(gateway) as client,
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key="sk-a", max_retries=0) as claude,
    ):
        batch = await run(client, lines(line(0, model="opus"), line(1, model="claude-3")))
        assert (batch.status, batch.model) == ("completed", "tiny")
        found = await content(client, batch.output_file_id)
        assert {row["response"]["body"]["model"] for row in found.values()} == {"tiny"}
        params: Any = {"model": "claude-3", "max_tokens": 1, "messages": QUESTION}
        wrong: Any = params | {"model": "clever"}
        batches = claude.messages.batches
        await batches.create(requests=[{"custom_id": "a", "params": params}])
        with pytest.raises(anthropic.BadRequestError, match="clever"):
            await batches.create(requests=[{"custom_id": "a", "params": wrong}])


async def test_aliases_may_have_several_stars_and_names_any_length(engine: Any, weft: Any) -> None:
    aliases = "*sonnet*=tiny,a*b*c?[d]=tiny"
    async with engine(script=answer) as stub, weft(stub, model_aliases=aliases) as gateway:

        async def status(model: str) -> int:
            body = {"model": model, "messages": QUESTION}
            return (await gateway.client.post("/v1/chat/completions", json=body)).status_code

        for name in ("sonnet", "a-sonnet-sonnet-4", "a-b-b-c?[d]"):
            assert await status(name) == 200
        for name in ("sonne", "a-b-cx[d]", "a-b-c?d", "sonnet" * 170_000 + "\n"):
            assert await status(name) == 404


@pytest.mark.parametrize("text", ["opus", "=tiny", "opus="])
def test_an_alias_without_a_model_stops_the_start(text: str) -> None:
    from weft_gateway.config import SettingsError, load

    with pytest.raises(SettingsError, match="is not NAME=MODEL"):
        load(model_aliases=text)
