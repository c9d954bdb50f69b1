"""Transactional messages: half messages, their commits and rollbacks, and the broker's checks."""
