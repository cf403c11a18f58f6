"""Experiments of the papers and of this project: cells, measurements and tables.

An experiment is a module with one `Experiment`, and a line in `registry`. Each cell is measured in
its own process, once for each content of the code. Tables and plots are pure functions of the
measured cells.
"""
