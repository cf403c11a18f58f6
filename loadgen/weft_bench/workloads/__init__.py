"""Synthetic workloads, from published statistics."""
