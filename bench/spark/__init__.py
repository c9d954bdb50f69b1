"""`python -m bench.spark`: our SparkRunner beside Beam's portable one and beside plain PySpark. See README.md here."""
