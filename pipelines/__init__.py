"""Runnable pipelines, one a file: `build(pipeline, options)` wires it, `main(argv)` runs it."""

from __future__ import annotations

import logging


def _is_worth_showing(record: logging.LogRecord) -> bool:
    # Importing Beam 2.77 without its Google extra logs a warning about BigQuery, of which none is used here.
    return not str(record.msg).startswith("apitools not found")


logging.getLogger().addFilter(_is_worth_showing)
