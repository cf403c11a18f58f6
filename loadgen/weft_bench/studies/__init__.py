"""Studies: the papers' figures in virtual time, each a YAML file on one runner.

A study says what to play, what to measure, which tables to print and what the paper published. Each
cell is measured in its own process; tables are pure functions of the measured cells.
"""
