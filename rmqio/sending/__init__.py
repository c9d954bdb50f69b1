"""Sending many messages: gathered in batches, routed to queues, sent, settled. Knows neither Beam nor Spark."""
