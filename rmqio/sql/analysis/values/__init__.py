"""Expressions: names, types, conversions and calls."""
