"""The base of all sinks: buffers, batches, retries, failures."""
