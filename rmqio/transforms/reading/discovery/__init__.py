"""Discovery of queues, and the first range of each."""
