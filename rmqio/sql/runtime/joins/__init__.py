"""Joins in workers."""
