"""Routing policies: filters, scorers, a picker."""
