"""Measures how far one tenant can slow another down: `weft bench tenants`."""
