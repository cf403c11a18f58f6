"""`weft run`: workflows of LLM calls as query plans, run over a table (Helium; Halo).

A client of any OpenAI-compatible server. A workflow is a graph of operators that runs once per row.
`language` holds the graph, which YAML (`spec`), Python (`weft_run.workflow`) and LangGraph compile
to, and its templates. `plan` is pure: it removes work that the outputs do not need, and decides
which call comes next. `io` reads rows, sends calls, runs tools and keeps the journal of a run.
"""
