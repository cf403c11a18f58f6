"""The lines that `weft up` prints when it is ready."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from weft_deploy.local import usage


def _line(name: str, model: str = "org/model") -> str:
    lines = usage.lines("http://127.0.0.1:9", model, Path("/logs"), ["model 1.0 s"], 2.0)
    return next(line.removeprefix(name).strip() for line in lines if line.startswith(name))


def test_the_curl_line_sends_a_chat_call():
    words = shlex.split(_line("curl"))
    assert words[:2] == ["curl", "http://127.0.0.1:9/v1/chat/completions"]
    body = json.loads(words[words.index("-d") + 1])
    assert body["model"] == "org/model"


def test_the_python_line_is_a_valid_program():
    _, flag, program = shlex.split(_line("Python"))
    assert flag == "-c"
    compile(program, "pasted", "exec")
    assert "'http://127.0.0.1:9/v1'" in program


def test_the_first_line_has_the_times_of_the_start():
    assert _line("Ready after") == "2.0 s (model 1.0 s)."


def test_without_an_answer_the_model_is_a_placeholder():
    assert usage.served_model("http://127.0.0.1:1") == "MODEL"
