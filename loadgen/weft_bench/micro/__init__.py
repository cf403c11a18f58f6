"""Costs of single parts of Weft, which these benches call directly."""
