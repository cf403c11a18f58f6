"""Metrics, receipts, event listeners and background tasks."""
