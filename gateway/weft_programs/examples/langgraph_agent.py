"""A LangGraph agent with LangChain's OpenAI model."""

from __future__ import annotations

import sys
from typing import Any, Literal

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def get_weather(city: str, unit: Literal["celsius", "fahrenheit"]) -> str:
    """Return the weather in a city."""
    return f"21 degrees {unit} in {city}"


def main(base_url: str, model: str = "weft-demo", *, max_turns: int = 3) -> list[BaseMessage]:
    """Ask, run the tools that the model calls, and ask again. Return the conversation."""
    chat: Any = ChatOpenAI.model_validate(
        {"base_url": base_url, "api_key": "none", "model": model, "max_tokens": 200}
    )
    forced = chat.bind_tools([get_weather], tool_choice="get_weather")
    free = chat.bind_tools([get_weather], tool_choice="none")

    def think(state: MessagesState) -> dict[str, Any]:
        """Call the model. Only the first turn calls the tool."""
        messages = state["messages"]
        return {"messages": [(forced if len(messages) == 1 else free).invoke(messages)]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode([get_weather]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    ask: Any = {"messages": [HumanMessage("What is the weather in Oslo?")]}
    # Each turn takes two steps of the graph: the model and its tools.
    found = graph.compile().invoke(ask, {"recursion_limit": 2 * max_turns})
    messages: list[BaseMessage] = found["messages"]
    return messages


if __name__ == "__main__":
    for line in main(*sys.argv[1:3]):
        line.pretty_print()
