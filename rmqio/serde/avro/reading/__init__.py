"""Encoded values to Python values, exactly as they were written, or an error that names the field."""
