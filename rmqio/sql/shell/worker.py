"""The process of a statement that needs a runner: `python -m rmqio.sql.shell.worker`, started by the shell.

The shell can end it at any time, and stays as it is. It gets the plan on standard input.
"""

from __future__ import annotations

import pickle
import signal
import sys
from typing import Any

from rmqio import security
from rmqio.sql.planning.plan import Relation
from rmqio.sql.scripts.script import Script
from rmqio.sql.shell.processes import Work
from rmqio.sql.values import in_zone


def run(work: Work) -> int:
    """Runs a statement and returns its exit status."""
    if work.query is not None:
        return _select(work, work.query)
    from rmqio.sql.job import run_job

    return run_job(Script(settings=work.settings, sinks=list(work.sinks), texts=work.texts), work.arguments)


def _select(work: Work, query: Relation) -> int:
    from rmqio import runners
    from rmqio.runners.program import run_program
    from rmqio.sql.runtime.scans import Connection
    from rmqio.sql.runtime.translation import Translation
    from rmqio.sql.runtime.writes import write_rows

    arguments = work.arguments
    connection = Connection(
        name_server=arguments.name_server,
        security=security.from_arguments(arguments),
        stop=arguments.stop,
        commits=False,
    )

    def build(pipeline: Any) -> None:
        with in_zone(work.settings.zone):
            write_rows(Translation(pipeline, connection, errors=work.texts.error).rows(query), work.descriptor)

    return run_program("rmqio sql", runners.options([]), build, lambda _: "", verbose=arguments.verbose)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(run(pickle.load(sys.stdin.buffer)))
