"""Manages jobs on Flink: lists them, cancels one, or stops one with a savepoint. Also runs a pool of their workers.

python -m rmqio.runners.flink jobs
python -m rmqio.runners.flink stop JOB --folder=file:///var/lib/savepoints
python -m rmqio.runners.flink workers --port=50000
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Sequence

from rmqio.errors import RmqioError
from rmqio.runners.flink.rest import FlinkJob, FlinkRest

_DEFAULT = "127.0.0.1:8081"


def find(rest: FlinkRest, wanted: str) -> FlinkJob:
    """Return the running job with this id or name. Raises `RmqioError` if there is none, or if there are several."""
    running = [each for each in rest.jobs() if not each.has_ended]
    found = [each for each in running if wanted in (each.id, each.name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise RmqioError(f"{len(found)} running jobs are named {wanted!r}: give the id of one")
    names = ", ".join(f"{each.name} ({each.id})" for each in running) or "none"
    raise RmqioError(f"no running job at {rest.url} has the id or the name {wanted!r}; running: {names}")


def show(jobs: Sequence[FlinkJob]) -> None:
    """Print a line per job, running jobs first."""
    for each in sorted(jobs, key=lambda job: (job.has_ended, job.duration_ms)):
        print(f"{each.id}  {each.state:10} {each.duration_ms / 1000:9.0f} s  {each.name}")
    if not jobs:
        print("no jobs")


def run_workers(port: int) -> None:
    """Run a pool of workers until SIGINT or SIGTERM."""
    logging.disable(logging.WARNING)  # Beam warns of missing optional modules
    from rmqio.runners.flink.workers import start_pool  # Beam takes seconds to import

    logging.disable(logging.NOTSET)
    address, stop = start_pool(processes=True, port=port)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"--environment_type=EXTERNAL --environment_config={address}", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        stop()


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rmqio.runners.flink",
        description="Manage jobs on a Flink cluster, or on the Flink inside a running pipeline's job server.",
        epilog="exit status: 0 done, 1 Flink does not answer, refuses, or has no such job, 2 wrong usage",
    )
    address = argparse.ArgumentParser(add_help=False)
    address.add_argument("--flink_master", default=_DEFAULT, metavar="HOST:PORT", help="default: %(default)s")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("jobs", parents=[address], help="list jobs")
    cancel = commands.add_parser("cancel", parents=[address], help="cancel a job; its last checkpoint stays")
    stop = commands.add_parser("stop", parents=[address], help="stop a job with a savepoint, and print its URL")
    workers = commands.add_parser("workers", help="run a pool of Python workers until Ctrl-C, next to each TaskManager")
    workers.add_argument(
        "--port", type=int, default=50_000, help="port on the loopback interface; default: %(default)s"
    )
    for each in cancel, stop:
        each.add_argument("job", metavar="JOB", help="id or name of the job")
    stop.add_argument("--folder", metavar="URL", help="where the savepoint goes; default: as the cluster is configured")
    stop.add_argument("--drain", action="store_true", help="fire all windows first; the job cannot be resumed then")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit status."""
    given = make_parser().parse_args(argv)
    try:
        if given.command == "workers":
            run_workers(given.port)
            return 0
        rest = FlinkRest(given.flink_master)
        if given.command == "jobs":
            show(rest.jobs())
        elif given.command == "cancel":
            rest.cancel(find(rest, given.job).id)
        else:
            print(rest.stop(find(rest, given.job).id, given.folder, drain=given.drain))
    except RmqioError as error:
        print(f"rmqio.runners.flink: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
