"""Metrics for Prometheus: one endpoint per machine for all processes that read and write.

Workers are several processes, which start and end at any time. Each writes its numbers to files in a shared folder, in
the format of prometheus_client's multiprocess mode (`values`, `folder`). The process that gets the port serves all
files; when it ends, another one takes over (`export`). Only this library uses the folder: metrics that the program
itself has in prometheus_client are stored elsewhere. Needs the extra `prometheus`, but not Beam.
"""

from rmqio.prometheus.export import (
    VARIABLE,
    Address,
    Export,
    parse_address,
    start,
    start_from_environment,
)
from rmqio.prometheus.values import FOLDER_VARIABLE, LATENCY_BUCKETS_S, exported_name

__all__ = [
    "FOLDER_VARIABLE",
    "LATENCY_BUCKETS_S",
    "VARIABLE",
    "Address",
    "Export",
    "exported_name",
    "parse_address",
    "start",
    "start_from_environment",
]
