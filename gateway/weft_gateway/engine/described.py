"""What an engine says of itself, checked: its models, and whether Weft's plugin runs there. Pure.

Both answers go on: to clients (`GET /v1/models`), into JSON (`/health`) and into decisions. What
passes here is safe for all of them. Arguments are JSON as orjson reads it: no NaN, no infinity.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

MAX_MODELS: Final = 10_000
MAX_ID: Final = 512
MAX_CARD_BYTES: Final = 16_384
_MAX_DEPTH: Final = 8
# A room of more tokens is a mistake, and the memory for its marks would be ours.
MAX_ROOM_TOKENS: Final = 100_000_000


def models_of(answer: Any) -> list[dict[str, Any]]:
    """The models in a parsed `/v1/models`, each as described, without those that are malformed.
    ValueError if it is no list of models, or none of them is well formed."""
    told = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(told, list):
        raise ValueError("not a list of models")
    cards = [card for card in map(_card, told[:MAX_MODELS]) if card is not None]
    if told and not cards:
        raise ValueError("no model has an id")
    return cards


def _card(told: Any) -> dict[str, Any] | None:
    if not isinstance(told, dict):
        return None
    name = told.get("id")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ID or not shallow(told):
        return None
    if len(orjson.dumps(told)) > MAX_CARD_BYTES:
        return None
    length = told.get("max_model_len")
    if type(length) is not int or length <= 0:
        return {key: value for key, value in told.items() if key != "max_model_len"}
    return told


def shallow(value: Any) -> bool:
    """Whether a value is nested at most 8 levels deep, so that any code can walk it."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        if not inner:
            return True
        level = inner
    return False


def owners(cards: list[dict[str, Any]]) -> frozenset[str | None]:
    """What serves the models, as the server calls itself; None among them where one is silent."""
    named = [card.get("owned_by") for card in cards] or [None]
    return frozenset(name if isinstance(name, str) and name else None for name in named)


def runs_plugin(answer: Any) -> bool:
    """Whether a parsed `/weft/state` is that of our plugin."""
    return isinstance(answer, dict) and isinstance(answer.get("weft"), dict)


def cache_room(answer: dict[str, Any]) -> int | None:
    """What a prefix cache has room for, tokens, as `/weft/state` tells; None where it does not.
    Of several engines behind one server it is not known which takes a call, so only what each of
    them can hold counts."""
    engines = answer.get("engines")
    rooms = [
        engine["cache_tokens"]
        for engine in (engines if isinstance(engines, list) else ())
        if isinstance(engine, dict) and type(engine.get("cache_tokens")) is int
    ]
    return min(max(0, min(rooms)), MAX_ROOM_TOKENS) if rooms else None
