"""Starts of programs and of pipelines, whole and by step: `python -m bench.start`."""
