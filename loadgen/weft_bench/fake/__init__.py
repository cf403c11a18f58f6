"""Immediate canned answers, to measure the cost of a proxy.

It does an eighth of the work of the simulated replica and does not model an engine.

`python -m weft_bench.fake --port 8001` starts one. It always identifies itself: `/v1/models`
contains `"owned_by": "weft-mock-engine"` and `"mock": true`. Use `weft_bench.simulated` for delays,
batching, caching, reports and faults.
"""
