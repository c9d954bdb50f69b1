"""Pipelines without end: our runner on Spark, Beam's on Flink, and a hand-written job of PySpark, side by side."""
