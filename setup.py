"""Adds to pyproject.toml the optional C extensions (docs/install.md), and the package's description."""

import os
import re
from pathlib import Path

from setuptools import Extension, setup

# optional: without a compiler rmqio installs all the same, and runs in Python.
_FAST = Extension(
    "rmqio.wire._fast",
    [f"rmqio/wire/_fast{name}.c" for name in ("", "_encoding", "_values", "_copies", "_header")],
    depends=["rmqio/wire/_fast.h"],
    optional=True,
)
_BULK = Extension(
    "rmqio.serde.avro._bulk",
    [f"rmqio/serde/avro/_bulk{name}.c" for name in ("", "_values", "_columns", "_keys")],
    depends=["rmqio/serde/avro/_bulk.h"],
    optional=True,
)
_LOOK = Extension(
    "rmqio.enrich.table._look",
    [f"rmqio/enrich/table/_look{name}.c" for name in ("", "_table", "_columns")],
    depends=["rmqio/enrich/table/_look.h", "rmqio/enrich/table/_look_find.h"],
    optional=True,
)
_NUMBERS = Extension("rmqio.serde._numbers", ["rmqio/serde/_numbers.c"], optional=True)


def _description() -> str:
    """README without its picture and the links into this repository: elsewhere, they lead nowhere."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)\n+", "", text)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)


# The wheel of a release for all platforms has none.
_WITHOUT = os.environ.get("RMQIO_NO_EXTENSION") == "1"
setup(
    ext_modules=[] if _WITHOUT else [_FAST, _BULK, _LOOK, _NUMBERS],
    long_description=_description(),
    long_description_content_type="text/markdown",
)
