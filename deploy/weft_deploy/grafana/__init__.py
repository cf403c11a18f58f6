"""Grafana: provisioning, and dashboards that are generated from code."""
