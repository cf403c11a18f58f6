"""Immediate canned answers, to measure the cost of a proxy. The engine has no timing.

`python -m weft_bench.fake --port 8001` starts one. It always identifies itself: `/v1/models`
contains `"owned_by": "weft-mock-engine"` and `"mock": true`. Use `weft replica --emulated` for
vLLM's scheduling, cache, reports and the times of a GPU.
"""
