"""What choosing a home takes: `weft bench placing`."""
