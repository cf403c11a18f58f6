"""Weft on one machine: the installer, the demo model and the supervisor behind `weft up`."""
