"""Pipelines without end on Spark's Structured Streaming: levels of stages between shuffles, state in Spark's store."""
