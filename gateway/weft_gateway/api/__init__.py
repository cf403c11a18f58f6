"""The HTTP layer: the call handler, sessions, models, health, administration, errors."""
