"""Plans of a run: which call comes next, in which window and group. Pure: no I/O, no clock."""
