"""Nexmark: a generator of its events, and its queries in RocketMQ SQL."""
