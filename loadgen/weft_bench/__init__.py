"""Workloads, trace readers, replay over HTTP and reports. Imports no module of the gateway."""
