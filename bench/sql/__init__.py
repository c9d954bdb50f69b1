"""SQL beside the same work by other means: `python -m bench.sql`."""
