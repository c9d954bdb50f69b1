"""The private parts of Beam that all runners use, those of its in-process runner, and the versions that have them.

The runners for Spark and Flink have their own: `rmqio/runners/spark/beam` and `rmqio/runners/flink/beam`.
"""
