"""A job that goes on: its checkpoints, which of them it resumes from, and the ids by which Flink finds state in it."""
