"""Aggregates, built in and of the user's own: partial results of a batch, and their merging."""
