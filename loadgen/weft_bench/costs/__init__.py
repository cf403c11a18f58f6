"""Costs of an engine's steps: the model, presets with their sources, and the fit to an engine."""
