"""Synthetic workloads from published statistics, readers of traces, and workload files."""
