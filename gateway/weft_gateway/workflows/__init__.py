"""Workflows: agentic batch jobs as query plans (Helium; Halo).

This package is pure: no I/O, no clock, no event loop.

A workflow is a graph of operators that runs once per row of a table. `graph` holds the internal
representation, which YAML (`spec`), Python (`weft.workflow`) and LangGraph (`langgraph`) compile
to; `templates` has the prompts. `rewrite` removes work that the outputs do not need, `signature`
names calls that have the same answer, `evaluate` defines the meaning of a graph, and `explain`
shows a plan before it runs.

`dispatch` runs a graph over rows, with `wavefront` for the rows in progress, `windows` for the
calls in flight, and `commands` for its caller. `groups` is the plan of `weft run`.
"""
