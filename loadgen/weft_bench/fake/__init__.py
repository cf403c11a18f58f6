"""Canned answers at once, for measuring what a proxy before it costs: an eighth of the work of the
simulated replica, and nothing of an engine.

`python -m weft_bench.fake --port 8001` starts one. It never pretends to be a real engine:
`/v1/models` says `"owned_by": "weft-mock-engine"` and `"mock": true`. What is to wait, batch,
cache, report or fail as an engine does is `weft_bench.simulated`.
"""
