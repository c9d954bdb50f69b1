"""The code that runs in Spark's Python workers: a fused Beam stage over Arrow batches."""
