"""Processes of a local broker: their Java and ports, their end with ours, and whether they are up."""
