"""Message traces: what happened to a message, in RocketMQ's trace topic."""
