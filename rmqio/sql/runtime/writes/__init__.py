"""Writes: messages, files, and updates of a table."""
