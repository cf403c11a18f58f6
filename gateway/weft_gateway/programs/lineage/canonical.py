"""Converts the messages of all APIs to one form: prompts and answers, without details that clients
change between requests. Pure.

A message is a list of atoms. Omitted: reasoning, ids of tool calls, cache hints, what engines leave
out (`weft_gateway.policies.unseen`), blank text, spaces around text, the order of JSON keys (also
in the arguments of tool calls, which are JSON text), and the split of a text into parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from weft_gateway.policies.unseen import seen
from weft_gateway.transcripts.transcript import Known, numbered

__all__ = [
    "ASSISTANT", "CALL", "TEXT", "Atom", "messages_of", "reader_of", "root_of", "said_in",
]  # fmt: skip

SYSTEM: Final = "s"
USER: Final = "u"
ASSISTANT: Final = "a"
CALL: Final = "c"
RESULT: Final = "r"
MEDIA: Final = "m"
# An answer that extends the prompt's own text.
TEXT: Final = "t"

_ROLES: Final = {
    "system": SYSTEM,
    "developer": SYSTEM,
    "user": USER,
    "assistant": ASSISTANT,
    "tool": RESULT,
    "function": RESULT,
}
# Tuples instead of sets: a client's type may be any value, and a list is not hashable.
_TEXT: Final = ("text", "input_text", "output_text")
_REASONING: Final = ("thinking", "redacted_thinking", "reasoning", "reasoning_text")
# The length and this many characters of each end identify an embedded image.
_MEDIA_ENDS: Final = 2048


# One piece of a message: its kind (a letter above) and its text without surrounding spaces.
Atom = tuple[str, str]


def root_of(body: Mapping[str, Any]) -> bytes:
    """Return the root of a chain: the model's name and its tools."""
    model = body.get("model")
    tools = body.get("tools") or body.get("functions")
    name = model.encode("utf-8", "surrogatepass") if isinstance(model, str) else b""
    return name + b"\x1d" + _json(tools).encode("utf-8", "surrogatepass") if tools else name


def messages_of(body: Mapping[str, Any]) -> list[tuple[int, list[Atom] | Known]]:
    """Return the messages with text of a body of any API: `messages` (with Anthropic's `system`),
    `input` (with `instructions`), or `prompt`. Each has its index, -1 for one beside the list; what
    stands for known messages stays in their place. Malformed parts are skipped; never raises.
    """
    found: list[tuple[int, list[Atom] | Known]] = []
    messages = body.get("messages")
    if isinstance(messages, list):
        if "system" in body:
            found.append((-1, _content(SYSTEM, seen(body["system"]))))
        _read(messages, _message, found)
    elif "input" in body:
        if body.get("instructions"):
            found.append((-1, _content(SYSTEM, seen(body["instructions"]))))
        given = body["input"]
        _read(
            given if isinstance(given, list) else [{"role": "user", "content": given}], _item, found
        )
    elif "prompt" in body:
        found.append((-1, _prompt(body["prompt"])))
    return [one for one in found if one[1]]


def _read(
    messages: list[Any],
    read: Callable[[Mapping[str, Any]], list[Atom]],
    found: list[tuple[int, list[Atom] | Known]],
) -> None:
    for index, message in numbered(messages):
        if isinstance(message, dict):
            found.append((index, read(message)))
        elif isinstance(message, Known):
            found.append((index, message))


def reader_of(name: str) -> Callable[[Mapping[str, Any]], list[Atom]]:
    """Return what reads an item of the list with this name."""
    return _message if name == "messages" else _item


def said_in(answer: Mapping[str, Any]) -> list[list[Atom]]:
    """Return the content of an answer: one list of atoms per choice. Never raises."""
    try:
        return [atoms for atoms in _answers(answer) if atoms]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []


def _answers(answer: Mapping[str, Any]) -> Iterator[list[Atom]]:
    if isinstance(answer.get("choices"), list):
        for choice in answer["choices"]:
            if isinstance(choice.get("message"), dict):
                yield _answer(choice["message"])
            elif isinstance(choice.get("text"), str):
                # The next prompt contains it as plain text.
                yield [(TEXT, choice["text"])]
    elif isinstance(answer.get("output"), list):
        yield [atom for item in answer["output"] if isinstance(item, dict) for atom in _item(item)]
    elif isinstance(answer.get("content"), list):
        yield _answer(answer)


def _answer(message: Mapping[str, Any]) -> list[Atom]:
    """Return the atoms of one answer message (Chat Completions and Anthropic), as the next request
    contains it.
    """
    return _message({**message, "role": "assistant"})


def _message(message: Mapping[str, Any]) -> list[Atom]:
    role = message.get("role")
    kind = _ROLES.get(role, USER) if isinstance(role, str) else USER
    content = message.get("content")
    if kind is SYSTEM:
        content = seen(content)
    if isinstance(content, str):  # The usual case.
        text = content.strip()
        if kind is ASSISTANT and "</think>" in text:
            text = _spoken(text)
        atoms = [(kind, text)] if text or kind is RESULT else []
    elif content is None and kind is not RESULT:
        atoms = []
    else:
        atoms = _content(kind, content)
    if "tool_calls" in message:
        calls = message["tool_calls"]
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                function = call.get("function") or call.get("custom")
                atoms.append(_call(function if isinstance(function, dict) else call))
    elif "function_call" in message and isinstance(message["function_call"], dict):
        atoms.append(_call(message["function_call"]))
    return atoms


def _item(item: Mapping[str, Any]) -> list[Atom]:
    """Return the atoms of an input or output item of the Responses API."""
    kind = item.get("type", "message")
    if kind == "message":
        return _message(item)
    if kind == "reasoning":
        return []
    if kind in ("function_call", "custom_tool_call"):
        return [_call(item)]
    if kind in ("function_call_output", "custom_tool_call_output"):
        return _content(RESULT, item.get("output"))
    return [_media(item)]


def _content(kind: str, content: Any) -> list[Atom]:
    if isinstance(content, str):
        content = (content,)
    elif not isinstance(content, list):
        content = ()
    atoms: list[Atom] = []
    run: list[str] = []
    for part in content:
        text = part if isinstance(part, str) else None
        if isinstance(part, dict):
            of = part.get("type")
            if of in _REASONING:
                continue
            if of in _TEXT or (of is None and "text" in part):
                text = part.get("text")
            elif of == "refusal":
                text = part.get("refusal")
            else:
                _flush(kind, run, atoms)
                if of == "tool_use":
                    atoms.append(_call(part))
                elif of == "tool_result":
                    atoms += _content(RESULT, part.get("content"))
                else:
                    atoms.append(_media(part))
        if isinstance(text, str):
            run.append(text)
    _flush(kind, run, atoms)
    # An empty tool result still counts as a result.
    return atoms or ([(RESULT, "")] if kind is RESULT else atoms)


def _flush(kind: str, run: list[str], atoms: list[Atom]) -> None:
    text = "".join(run)
    run.clear()
    if kind is ASSISTANT:
        text = _spoken(text)
    text = text.strip()
    if text:
        atoms.append((kind, text))


def _spoken(text: str) -> str:
    """Remove the reasoning that some engines leave in the text. A template may have opened it in
    the prompt, so the closing tag alone is enough.
    """
    return text.rpartition("</think>")[2].strip()


def _call(call: Mapping[str, Any]) -> Atom:
    arguments = call.get("arguments", call.get("input"))
    if isinstance(arguments, str):
        # Long arguments bypass the cache: a thousand of them must not fill the memory.
        read = _sorted_text if len(arguments) <= 1024 else _sorted_text.__wrapped__
        arguments = read(arguments)
    else:
        arguments = _json(arguments)
    return (CALL, f"{call.get('name')} {arguments}")


@lru_cache(maxsize=2048)
def _sorted_text(text: str) -> str:
    try:
        return _json(orjson.loads(text)) or text.strip()
    except ValueError:
        return text.strip()


def _media(part: Mapping[str, Any]) -> Atom:
    text = _json({key: value for key, value in part.items() if key not in ("cache_control", "id")})
    if len(text) > 2 * _MEDIA_ENDS:
        text = f"{len(text)} {text[:_MEDIA_ENDS]}{text[-_MEDIA_ENDS:]}"
    return (MEDIA, text)


def _prompt(prompt: Any) -> list[Atom]:
    """A prompt is text, tokens, or a list of these. The model continues from its very end, so
    trailing spaces count.
    """
    several = isinstance(prompt, list) and not _are_tokens(prompt)
    atoms: list[Atom] = []
    for part in prompt if several else (prompt,):
        if isinstance(part, str):
            if part.strip():
                atoms.append((USER, part))
        elif isinstance(part, list) and _are_tokens(part):
            atoms.append((USER, " ".join(map(str, part))))
    return atoms


def _are_tokens(prompt: list[Any]) -> bool:
    return bool(prompt) and isinstance(prompt[0], int)


def _json(value: Any) -> str:
    """Return the same text for equal values; "" for a value that is nested too deeply."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        return ""
