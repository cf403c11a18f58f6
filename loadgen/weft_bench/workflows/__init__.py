"""Batch workflows in virtual time: shapes of published workflows, ways to dispatch their calls, and
exact solvers for small plans.

The engines are those of `weft_bench.virtual`, the plans those of `weft run` and of
`weft_bench.planner`.
"""
