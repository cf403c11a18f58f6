"""Workloads, trace readers, replay over HTTP and reports. Speaks HTTP to the gateway; imports nothing of it."""
