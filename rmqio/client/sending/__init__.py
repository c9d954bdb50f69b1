"""Sending: choosing queues, tracking batches in flight, and settling their outcome."""
