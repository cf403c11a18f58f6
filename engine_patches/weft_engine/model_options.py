"""Options of vLLM that follow from the model: the parser of its tool calls, and its public name.

vLLM answers 400 to each call with tools unless an operator names the parser of the model's family.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# Parsers of vLLM by the name of the model, or by the `model_type` of its configuration. The first
# match counts.
_PARSERS: Final = (
    (r"embed|rerank|reward|guard", ""),
    (r"qwen3[-_.]?coder|qwen3\.5|qwen3_5", "qwen3_coder"),
    (r"qwen2\.5|qwen2_5|qwen3|qwq|hermes|weft-demo", "hermes"),
    (r"llama-?4", "llama4_pythonic"),
    (r"llama-?3", "llama3_json"),
    (r"mistral|ministral|devstral|magistral", "mistral"),
    (r"deepseek-v3\.2", "deepseek_v32"),
    (r"deepseek-v3\.1", "deepseek_v31"),
    (r"deepseek-v3|deepseek-r1-0528", "deepseek_v3"),
    (r"gpt[-_]oss", "openai"),
    (r"glm-4\.[56]", "glm45"),
    (r"glm-4\.7", "glm47"),
    (r"kimi[-_]k2", "kimi_k2"),
    (r"minimax-m2", "minimax_m2"),
    (r"granite-4", "granite4"),
    (r"granite-3", "granite"),
    (r"phi-4-mini", "phi4_mini_json"),
    (r"olmo-3", "olmo3"),
    (r"seed-oss", "seed_oss"),
)
# With one of these, the operator decides.
_OF_TOOLS: Final = (
    "--enable-auto-tool-choice",
    "--no-enable-auto-tool-choice",
    "--tool-call-parser",
    "--config",
)


def model_options(model: str, extra: Sequence[str]) -> list[str]:
    """Return the options for a model that `extra`, the operator's arguments, leaves open. Prints a
    line if the model's parser is unknown.
    """
    given = {argument.partition("=")[0].replace("_", "-") for argument in extra}
    folder = Path(model)
    found = []
    if folder.is_dir() and "--served-model-name" not in given:
        # Otherwise clients would have to name the path.
        found += ["--served-model-name", folder.resolve().name]
    if given.isdisjoint(_OF_TOOLS):
        parser = tool_parser(model)
        if parser:
            found += ["--enable-auto-tool-choice", "--tool-call-parser", parser]
        elif parser is None:
            print(
                f"weft replica: no parser of tool calls is known for {model}: calls with tools get "
                "400. Add --enable-auto-tool-choice --tool-call-parser NAME",
                file=sys.stderr,
            )
    return found


def tool_parser(model: str) -> str | None:
    """Return vLLM's parser for the tool calls of a model: "" if it makes no tool calls, None if the
    parser is unknown.
    """
    names = model.rstrip("/").rpartition("/")[2].lower()
    try:
        kind = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))["model_type"]
        names += f" {kind}".lower()
    except (OSError, ValueError, KeyError, TypeError):
        pass  # A name on a hub, or a folder in another format.
    return next((parser for pattern, parser in _PARSERS if re.search(pattern, names)), None)
