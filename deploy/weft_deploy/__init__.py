"""Deployment: the supervisor behind `weft up`, the installer, dashboards and reference pages."""
