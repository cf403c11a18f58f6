"""The emulated engine: vLLM's API server, scheduler and KV manager with a worker without a model.

The worker takes the time that a GPU would take, from the cost model in `cost_model`. The
names of vLLM that it uses are in `compat`.
"""
