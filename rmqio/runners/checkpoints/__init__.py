"""Checkpoints: the option that names one, and the lock that only one pipeline has."""
