"""Benches of single parts of Weft, called directly."""
