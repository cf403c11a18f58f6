"""Runs of workflows: the I/O around the plans of `weft_run`.

Rows are read and written here, calls are sent, tools run, and the journal of a run is kept. All
decisions come from `weft_run`.
"""
