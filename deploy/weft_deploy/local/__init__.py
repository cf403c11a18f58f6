"""One machine, one command: the installer, the demo model and the supervisor behind `weft up`."""
