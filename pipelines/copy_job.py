"""A copy: from RocketMQ, Kafka, files or a database to any of them, to a search engine or to the console.

python pipelines/copy_job.py --from=rocketmq:orders --to='out/?format=parquet' --name_server=127.0.0.1:9876

It is `rmqio copy`, for those who submit a file.
"""

from __future__ import annotations

import rmqio.pipelines  # isort: skip  # noqa: F401 - before Beam, to silence a warning that importing it logs

import sys
from collections.abc import Sequence

from rmqio.command_line.arguments import add_name_server
from rmqio.command_line.parser import Parser
from rmqio.connect.copying import command
from rmqio.security import add_arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run the copy of a command line and return the exit status."""
    parser = Parser(prog="copy_job.py", description="Copy messages and rows from one system to another one.")
    command.add_options(parser)
    add_name_server(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="log what Beam does, and show tracebacks")
    add_arguments(parser)
    parser.passes_on = True
    return command.run(parser.parse(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    # Import it under its own name, so that other processes can find the functions sent to them.
    from rmqio.pipelines import copy_job

    sys.exit(copy_job.main())
