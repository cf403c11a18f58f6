"""A fast OpenAI-shaped engine without a model, for measuring and testing what stands before it.

`python -m loadgen.mock_engine --port 8001` starts one. It never pretends to be a real engine:
`/v1/models` says `"owned_by": "weft-mock-engine"` and `"mock": true`.
"""
