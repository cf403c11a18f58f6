"""Online tuning: chooses alpha of the balancer `work` from a replay of recent calls.

Files in the order of a tuning: `journal` of `shapes`, `window`, `triggers`, `engines`, `process`,
`replay`, and `tuner`, which decides, applies and rolls back `values`. See docs/guides/tuning.md.
"""
