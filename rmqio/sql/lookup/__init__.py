"""Dimension tables: loaded in a worker, kept in memory, looked up by key."""
