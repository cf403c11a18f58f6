"""The I/O of a run: rows, calls, tools, and the journal. All decisions come from `plan`."""
