"""Batch rows, for `weft bench peers --rows`: `weft run` beside LangGraph on the same engines."""
