"""How Weft is run: the local supervisor behind `weft up`, compose files, dashboards."""
