"""Queues of a topic: what they hold, and where a group is in them."""
