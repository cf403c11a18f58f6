"""Online tuning: chooses alpha of the balancer `work` from a replay of recent calls.

Files in the order of a tuning: `journal`, `window`, `triggers`, `candidates`, `process`, `replay`,
and `tuner`, which decides, applies and rolls back. See docs/tuning.md.
"""
