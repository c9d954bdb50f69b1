"""Reads on a runner that plans the ranges of a micro-batch."""
