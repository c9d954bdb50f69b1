"""Dimension tables."""
