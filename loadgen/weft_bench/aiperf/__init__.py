"""Exchanges workloads and results with aiperf, NVIDIA's benchmark client: `weft bench workload`."""
