"""Expressions as Python: values, casts, and calls of the user's functions."""
