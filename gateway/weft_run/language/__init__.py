"""The language of workflows: YAML, Python and LangGraph graphs, templates and their checks."""
