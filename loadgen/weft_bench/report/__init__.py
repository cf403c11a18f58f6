"""Tables, plots and JSON of what was measured."""
