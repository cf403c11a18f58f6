"""An agent that uses only the OpenAI client."""

from __future__ import annotations

import json
import sys
from typing import Any

import openai

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
FORCED: Any = {"type": "function", "function": {"name": "get_weather"}}


def get_weather(city: str, unit: str) -> str:
    """Return the weather, which is always the same."""
    return f"21 degrees {unit} in {city}"


def main(base_url: str, model: str = "weft-demo", *, max_turns: int = 3) -> list[Any]:
    """Ask, run the tools that the model calls, and ask again. Return the conversation."""
    client = openai.OpenAI(base_url=base_url, api_key="none")
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
    for turn in range(max_turns):
        answer = client.chat.completions.create(
            model=model,
            messages=messages,
            tools=[WEATHER],
            tool_choice=FORCED if turn == 0 else "none",
            max_tokens=200,
        )
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            if call.type == "function":
                output = get_weather(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": output})
    return messages


if __name__ == "__main__":
    for line in main(*sys.argv[1:3]):
        print(line)
