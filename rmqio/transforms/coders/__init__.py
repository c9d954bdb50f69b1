"""Beam coders of the values that travel between stages."""
