"""The true tags of a prompt from a full tokenisation: real tokenizers and common templates."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

Body = dict[str, Any]
# A piece's tag in the engine's numbers, and its text. Control tokens are written as <|name|>.
Piece = tuple[int, str]
Template = Callable[[Body], list[Piece]]
Tokens = Callable[[str], int]

RESPONSE, TOOL_OUTPUT, USER_QUERY, SYSTEM_PROMPT = 1, 2, 3, 4
_TAGS: Final = {"assistant": RESPONSE, "tool": TOOL_OUTPUT, "user": USER_QUERY}
_CONTROL: Final = re.compile(r"<\|\w+\|>")


def _split(body: Body) -> tuple[str, list[Body], list[Body]]:
    """Return the system prompt, the other messages, and the tools."""
    messages = body["messages"]
    if messages and messages[0]["role"] == "system":
        return messages[0]["content"], messages[1:], body.get("tools", [])
    return "", messages, body.get("tools", [])


def _calls(message: Body) -> Iterator[tuple[str, str]]:
    for call in message.get("tool_calls") or ():
        yield call["function"]["name"], call["function"]["arguments"]


def _tag(message: Body) -> int:
    # A later system message is specific to its program.
    return _TAGS.get(message["role"], USER_QUERY)


def chatml(body: Body) -> list[Piece]:
    """Render the demo model's template.

    Tools are JSON lines in the system message, and their results are in turns of the user.
    """
    system, messages, tools = _split(body)
    pieces: list[Piece] = []
    if system or tools:
        text = f"<|im_start|>system\n{system}\n" if system else "<|im_start|>system\n"
        if tools:
            lines = "".join(f"{json.dumps(tool, ensure_ascii=False)}\n" for tool in tools)
            text += (
                "You can call these tools. Each line is one tool, described in JSON:\n"
                f"<tools>\n{lines}</tools>\n"
                "To call one, write its name and arguments as JSON between <tool_call> and "
                "</tool_call>.\n"
            )
        pieces.append((SYSTEM_PROMPT, f"{text}<|im_end|>\n"))
    for message in messages:
        text, role = message.get("content") or "", message["role"]
        if role == "tool":
            role, text = "user", f"<tool_response>\n{text}\n</tool_response>"
        for name, arguments in _calls(message):
            text += f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
        pieces.append((_tag(message), f"<|im_start|>{role}\n{text}<|im_end|>\n"))
    return [*pieces, (0, "<|im_start|>assistant\n")]


def headed(body: Body) -> list[Piece]:
    """Render a template like Llama's.

    It has a preamble, indented tools, and a header of control tokens per message.
    """
    system, messages, tools = _split(body)
    text = "Knowledge until: December 2023\nToday: 26 July 2024\n\n"
    if tools:
        text += "You have these functions. Answer with JSON to call one of them.\n\n"
        text += "".join(f"{json.dumps(tool, indent=4)}\n\n" for tool in tools)
    text += system
    pieces: list[Piece] = [
        (SYSTEM_PROMPT, f"<|begin|><|header|>system<|header_end|>\n\n{text}<|end|>")
    ]
    for message in messages:
        role = "ipython" if message["role"] == "tool" else message["role"]
        text = message.get("content") or ""
        for name, arguments in _calls(message):
            text += f'{{"name": "{name}", "parameters": {arguments}}}'
        pieces.append((_tag(message), f"<|header|>{role}<|header_end|>\n\n{text}<|end|>"))
    return [*pieces, (0, "<|header|>assistant<|header_end|>\n\n")]


def bracketed(body: Body) -> list[Piece]:
    """Render a template like Mistral's.

    Control tokens surround all text except the model's. Roles are not named.
    """
    system, messages, tools = _split(body)
    pieces: list[Piece] = [(SYSTEM_PROMPT, "<|begin|>")]
    if system:
        pieces.append((SYSTEM_PROMPT, f"<|system|>{system}<|system_end|>"))
    if tools:
        pieces.append((SYSTEM_PROMPT, f"<|tools|>{json.dumps(tools)}<|tools_end|>"))
    for message in messages:
        text, tag = message.get("content") or "", _tag(message)
        if tag == RESPONSE:
            for name, arguments in _calls(message):
                text += f"<|calls|>{name}<|arguments|>{arguments}"
            pieces.append((tag, f"{text}<|end|>"))
        elif tag == TOOL_OUTPUT:
            pieces.append((tag, f"<|results|>{text}<|results_end|>"))
        else:
            pieces.append((tag, f"<|ask|>{text}<|ask_end|>"))
    return pieces


def spans(pieces: Iterable[Piece], tokens: Tokens) -> list[tuple[int, int]]:
    """Return (end, tag) of each piece.

    A control token separates tokens. Each piece begins or ends with one, so its tokens can be
    counted alone.
    """
    found: list[tuple[int, int]] = []
    end = 0
    for tag, text in pieces:
        end += tokens(text)
        # The generation prompt has the tag of the previous piece.
        found.append((end, tag or found[-1][1]))
    return found


def reached(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans with the highest tag of themselves and all later ones.

    A prefix cache finds no block behind a gap.
    """
    highest = 0
    backwards = []
    for end, tag in reversed(found):
        highest = max(highest, tag)
        backwards.append((end, highest))
    return backwards[::-1]


def counting(encode: Callable[[str], int]) -> Tokens:
    """Return a counter of tokens that counts control tokens as one each, and caches its results."""

    @lru_cache(maxsize=1 << 16)
    def piece(text: str) -> int:
        return encode(text) if text else 0

    @lru_cache(maxsize=1 << 16)
    def tokens(text: str) -> int:
        return sum(map(piece, _CONTROL.split(text))) + len(_CONTROL.findall(text))

    return tokens


def tokenizers(texts: Callable[[], Iterable[str]]) -> dict[str, tuple[Template, Tokens]]:
    """Return the available tokenizers, each with a template.

    They are the demo model's, one trained on `texts` now, and Mistral's if its package is
    installed. Raises ImportError without `tokenizers`.
    """
    from weft_deploy.local.demo import corpus, tokenizer
    from weft_deploy.local.demo_model import VOCABULARY

    demo = tokenizer.train(corpus.pieces(), VOCABULARY)
    found: dict[str, tuple[Template, Tokens]] = {
        "demo, 6k": (chatml, counting(lambda text: len(demo.encode(text).ids)))
    }
    trained = _trained(texts())
    found["trained, 32k"] = (headed, counting(lambda text: len(trained.encode(text).ids)))
    mistral = _mistral()
    if mistral is not None:
        found["Mistral's, 131k"] = (bracketed, counting(mistral))
    return found


def _trained(texts: Iterable[str]) -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    made = Tokenizer(BPE())
    made.pre_tokenizer = ByteLevel(add_prefix_space=False)
    alphabet = sorted(ByteLevel.alphabet())
    made.train_from_iterator(
        texts, BpeTrainer(vocab_size=32_768, initial_alphabet=alphabet, show_progress=False)
    )
    return made


def _mistral() -> Callable[[str], int] | None:
    try:
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    except ImportError:
        return None
    from importlib.resources import files

    file = files("mistral_common") / "data" / "tekken_240911.json"
    if not file.is_file():
        return None
    tekken = Tekkenizer.from_file(str(file))
    return lambda text: len(tekken.encode(text, bos=False, eos=False))
