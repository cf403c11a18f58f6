"""Batch rows, for `weft bench agents --rows`: `weft run` beside LangGraph on the same engines."""
