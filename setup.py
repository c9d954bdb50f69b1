"""The optional C extension (docs/accelerator.md); all else is in pyproject.toml."""

from setuptools import Extension, setup

# optional: without a compiler rmqio installs all the same, and runs in Python.
setup(ext_modules=[Extension("rmqio.wire._fast", ["rmqio/wire/_fast.c"], optional=True)])
