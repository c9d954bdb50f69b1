"""Runs unbounded pipelines on Structured Streaming: levels of stages between shuffles, with state in Spark's store."""
