"""An agent whose tools start while the model still answers. The server prefills the next prompt
while they run (Sutradhara 4.1, 4.2)."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

from weft_programs import Run, Session, Tool

CITY: Final = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}


async def get_weather(city: str, unit: str) -> dict[str, Any]:
    """A slow look-up."""
    await asyncio.sleep(0.3)
    return {"city": city, "degrees": 21, "unit": unit}


async def main(base_url: str, model: str = "weft-demo", *, max_turns: int = 3) -> Run:
    """Ask for the weather in several cities; `required` allows several tool calls in one answer."""
    weather = Tool("get_weather", get_weather, "The weather in a city.", CITY, timeout_s=10)
    async with Session(base_url) as session:
        return await session.run_tools(
            model=model,
            messages=[{"role": "user", "content": "Compare the weather in Oslo and Rome."}],
            tools=[weather],
            tool_choice="required",
            max_turns=max_turns,
            max_tokens=300,
            on_call=lambda call: print(f"started: {call.name} {call.arguments}"),
        )


if __name__ == "__main__":
    run = asyncio.run(main(*sys.argv[1:3]))
    for tool_run in run.tool_runs:
        print(f"{tool_run.head_start_s:.3f} s before the answer's end: {tool_run.output}")
    print(run.answer)
