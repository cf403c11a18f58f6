"""HTTP and nothing else: the hot handler, sessions, models, health, administration, errors."""
