"""Load over HTTP: clients, closed loops, and the order and counters of engines."""
