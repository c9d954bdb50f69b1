"""Decodes JSON bodies to NamedTuples, dataclasses and TypedDicts: exactly, and fast where msgspec agrees."""
