"""Reads: topics, files and databases, and the fragments of their rows."""
