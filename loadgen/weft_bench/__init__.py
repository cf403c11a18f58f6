"""Workloads, trace readers, replay over HTTP and reports. Imports nothing of the gateway."""
