"""Weft's gateway: an OpenAI-compatible server that knows which calls form one program."""
