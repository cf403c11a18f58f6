"""Readers of real traces."""
