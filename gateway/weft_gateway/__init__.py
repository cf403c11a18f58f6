"""Weft's gateway: an OpenAI-compatible server that groups calls into programs."""
