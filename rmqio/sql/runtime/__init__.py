"""SQL in workers: DoFns, and the fragments that they compile."""
