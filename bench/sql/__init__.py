"""SQL beside the same work by other means: `python -m bench.sql`; `flink` is the SQL of Flink, for others, too."""
