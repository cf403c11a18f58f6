"""Batch workflows by `weft run`, by LangGraph and by Helium's Algorithm 1, on the same engines:
map-reduce over TAT-QA, and text to SQL over Spider with two models.
"""
