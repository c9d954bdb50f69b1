"""Writes of batches: many messages from one element."""
