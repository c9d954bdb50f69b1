"""Sub-queries in expressions."""
