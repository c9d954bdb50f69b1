"""EXPLAIN: plans as text that a person reads."""
