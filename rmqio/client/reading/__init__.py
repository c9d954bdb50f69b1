"""Pipelined reading: several pulls in flight for each queue, and waiting for any of them."""
