"""Transactional messages: half messages, their ends, and the broker's questions about them."""
