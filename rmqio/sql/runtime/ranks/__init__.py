"""Ranks in workers."""
