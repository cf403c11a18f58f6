"""Replays recorded calls with other values of the tuned parameters, in a separate process.

`python -m weft_gateway.tuning.replay` is that process. The router, the process table, the orders
and the budgets are those of production; the engine is a model with the costs that it fitted itself.
"""
