"""An OpenAI Agents SDK agent that uses Chat Completions."""

from __future__ import annotations

import asyncio
import sys
from typing import Literal

import openai
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    RunResult,
    function_tool,
)


@function_tool
def get_weather(city: str, unit: Literal["celsius", "fahrenheit"]) -> str:
    """Return the weather in a city."""
    return f"21 degrees {unit} in {city}"


async def main(base_url: str, model: str = "weft-demo", *, max_turns: int = 3) -> RunResult:
    """Run the agent. The SDK forces a tool in the first turn only."""
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none") as client:
        agent = Agent(
            name="guide",
            instructions="Say what the weather is.",
            tools=[get_weather],
            model=OpenAIChatCompletionsModel(model=model, openai_client=client),
            model_settings=ModelSettings(tool_choice="get_weather", max_tokens=200),
        )
        # The SDK would send traces to OpenAI.
        config = RunConfig(tracing_disabled=True)
        ask = "What is the weather in Oslo?"
        return await Runner.run(agent, ask, max_turns=max_turns, run_config=config)


if __name__ == "__main__":
    print(asyncio.run(main(*sys.argv[1:3])).final_output)
