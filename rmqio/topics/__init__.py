"""Topics: subscriptions, look-ups when a pipeline is submitted, turns and keys of queues, and names."""
