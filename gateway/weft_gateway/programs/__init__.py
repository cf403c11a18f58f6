"""Identity, lineage and the process table: the program of each call and the state of programs."""
