"""Reads: of one queue in parts, and on brokers that hang or are dead."""
