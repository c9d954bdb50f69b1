"""The peer: Beam's portable SparkRunner, its job server, and the jars that it runs on."""
