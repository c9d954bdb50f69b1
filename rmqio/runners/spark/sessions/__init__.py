"""A Spark of our own: its session, its start, what its processes log, and packages for its executors."""
