"""The code path of a call: it matches the structure page, and every feature can be removed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
import weft_gateway
from support.sources import ROOT
from weft_gateway import app

pytestmark = [pytest.mark.system, pytest.mark.anyio]

SOURCES = f"{Path(weft_gateway.__file__).parent}/"
MOST = 26
# The modules of the path, without the client's connection and the features.
ON_PATH = re.compile(r"(?:api|calls)/(?!edge|coalescing|connections|keep_alive|timers)\w+\.py")
FIRST = "Dispatcher.__call__"
LISTED = re.compile(r"^\| (\d+) \| `weft_gateway\.([\w.]+)` \| `([\w.]+)` \|", re.MULTILINE)
FEATURES = {
    "metrics": "MetricsObserver",
    "receipts": "ReceiptsObserver",
    "lineage": "LineageObserver",
    "prefills": "PrefillObserver",
    "automatic prefills": "AutoPrefill",
    "tool dispatch": "ToolDispatchObserver",
    "stored responses": "StoredAnswers",
    "token learning": "TokenLearning",
    "sources of prompt tokens": "PromptObserver",
    "transcripts": "TranscriptObserver",
    "journal": "JournalObserver",
    "limits": "LimitsObserver",
    "admission": "AdmissionObserver",
    "background responses": "BackgroundObserver",
    "costs": "CostObserver",
    "targets": "FeasibleObserver",
    "calls that can wait": "PatientObserver",
}


async def answer(wire: Any, request: Any) -> None:
    """Answer with a stream or a plain body, as requested."""
    if request.json.get("stream"):
        word = b'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'
        await wire.stream(word, word, b"data: [DONE]\n\n")
    else:
        await wire.plain({"object": "chat.completion", "choices": []})


class Trace:
    """Records the functions of the path that another module of the path calls, each once, in order.

    Helpers within a module, constructors and properties are left out.
    """

    def __init__(self) -> None:
        self.passed: list[tuple[str, str]] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        module, name = _module(frame), code.co_name
        from_module = _module(frame.f_back) if frame.f_back else ""
        entered = from_module not in ("", module) or code.co_qualname == FIRST
        public = not name.startswith("_") or name in ("__call__", "__aenter__", "__aexit__")
        is_property = isinstance(getattr(type(frame.f_locals.get("self")), name, None), property)
        if not (module and entered and public) or is_property or "<" in code.co_qualname:
            return
        step = (module.removesuffix(".py").replace("/", "."), code.co_qualname)
        if step not in self.passed:
            self.passed.append(step)


def _module(frame: FrameType) -> str:
    """Return the path's module of a frame, or "" for other frames."""
    file = frame.f_code.co_filename.removeprefix(SOURCES)
    return file if ON_PATH.fullmatch(file) else ""


@pytest.mark.parametrize("headers", [{"x-weft-program": "run"}, {}])
async def test_a_streamed_call_uses_the_functions_that_the_page_lists(
    headers: dict[str, str], engine: Any, weft: Any
) -> None:
    page = (ROOT / "docs/internals/structure.md").read_text()
    listed = LISTED.findall(page)
    assert [int(number) for number, _, _ in listed] == list(range(1, len(listed) + 1))
    assert 10 < len(listed) <= MOST
    trace = Trace()
    async with engine(script=answer) as stub, weft(stub) as gateway:
        body = {"stream": True, "messages": [{"role": "user", "content": "How far is it?"}]}
        assert (await gateway.call(body=body, headers=headers)).status_code == 200
        sys.setprofile(trace)
        try:
            got = await gateway.call(body=body, headers=headers)
        finally:
            sys.setprofile(None)
        assert got.text.endswith("data: [DONE]\n\n")
    assert trace.passed == [(module, name) for _, module, name in listed]


def without(feature: str) -> type[app.Gateway]:
    """Return the gateway class of a composition root without the line of one feature."""
    source = Path(app.__file__).read_text()
    lines = source.splitlines(keepends=True)
    kept = [line for line in lines if f"add({feature}(" not in line]
    assert len(kept) == len(lines) - 1
    module = ModuleType(app.__name__)
    exec(compile("".join(kept), app.__file__, "exec"), module.__dict__)
    found: type[app.Gateway] = module.Gateway
    return found


@pytest.mark.parametrize("feature", FEATURES.values(), ids=FEATURES)
async def test_the_gateway_serves_calls_without_a_feature(
    feature: str, engine: Any, weft: Any
) -> None:
    settings = {"requests_per_minute": 100, "auto_prefill": True}
    async with (
        engine(script=answer) as stub,
        weft(stub, build=without(feature), **settings) as gateway,
    ):
        for headers in ({"x-weft-program": "run"}, {}):
            for stream in (False, True):
                got = await gateway.call(body={"stream": stream}, headers=headers)
                assert got.status_code == 200
                assert ("[DONE]" in got.text) is stream
        assert len(stub.requests) == 4
        (session,) = [
            session
            for session in (await gateway.client.get("/v1/sessions")).json()["data"]
            if session["id"] == "run"
        ]
        assert (session["calls"], session["calls_in_flight"], session["errors"]) == (2, 0, 0)


def test_the_list_of_features_matches_the_composition_root() -> None:
    source = Path(app.__file__).read_text()
    assert set(re.findall(r"^ +add\((\w+)\(", source, re.MULTILINE)) == set(FEATURES.values())
