"""Compiles expressions to Python: one function over a batch for all that happens to a row between two shuffles."""
