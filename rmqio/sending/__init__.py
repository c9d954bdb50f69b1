"""Sends many messages: batches them, routes them to queues, sends and settles them. Independent of Beam and Spark."""
