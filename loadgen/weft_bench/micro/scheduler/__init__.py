"""What a step of the scheduler costs, ours beside stock's: `weft bench scheduler`."""
