"""Costs of an engine's steps: the model, presets with their sources, the fit to an engine."""
