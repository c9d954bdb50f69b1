"""Sending: where a message goes, what is in flight, and what becomes of it."""
