"""Agents of well-known frameworks that only change `base_url`, and one that overlaps its tools.

Run one with `python -m weft_programs.examples.overlap http://127.0.0.1:8080/v1`. Tools are forced
in the first turn, and turns and tokens are limited, so that the examples also end with the demo
model, which writes random text. Install the frameworks first.
"""
