"""Scalar functions and operators of SQL."""
