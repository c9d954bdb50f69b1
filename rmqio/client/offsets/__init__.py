"""Offsets of many queues: asked for and committed at once, with one deadline, and silent brokers left alone."""
