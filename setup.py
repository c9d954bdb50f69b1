"""The optional C extension (docs/accelerator.md); all else is in pyproject.toml."""

from setuptools import Extension, setup

# optional: without a compiler rmqio installs all the same, and runs in Python.
_FAST = Extension(
    "rmqio.wire._fast",
    ["rmqio/wire/_fast.c", "rmqio/wire/_fast_values.c", "rmqio/wire/_fast_header.c"],
    depends=["rmqio/wire/_fast.h"],
    optional=True,
)
setup(ext_modules=[_FAST])
