"""How well programs are told apart when no key says whose call it is: `weft bench lineage`."""
