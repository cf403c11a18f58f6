"""The planner of the bench: Helium's schedules and costs, Halo's placements, and Weft's own plan.

`weft run` needs none of it: see `weft_run.plan.groups`. All modules are pure.
"""
