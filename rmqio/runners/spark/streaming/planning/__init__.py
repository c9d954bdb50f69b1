"""Planning micro-batches, in the Python process that Spark starts beside the driver for its source."""
