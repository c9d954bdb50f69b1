"""Runnable pipelines, one per file: `build(pipeline, options)` wires the pipeline, `main(argv)` runs it."""

from __future__ import annotations

import logging


def _is_worth_showing(record: logging.LogRecord) -> bool:
    # Importing Beam 2.77 without its Google extra logs a warning about BigQuery, which nothing here uses.
    return not str(record.msg).startswith("apitools not found")


logging.getLogger().addFilter(_is_worth_showing)
