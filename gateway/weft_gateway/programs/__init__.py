"""Whose call is it, and what has its program used: identity and the process table."""
