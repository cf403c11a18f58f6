"""Map-reduce over the questions of TAT-QA: seven experts and an editor, by `weft run` and by
LangGraph, on the same engines.
"""
