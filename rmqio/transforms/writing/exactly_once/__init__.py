"""Exactly-once writes: the gate, and the state of a sink."""
