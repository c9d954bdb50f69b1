"""The common work of our runners when a pipeline is submitted, before any work starts."""

from __future__ import annotations

import os
from typing import Any, Final, NoReturn

from apache_beam.options.pipeline_options import PipelineOptions

from rmqio.errors import LocalError
from rmqio.runners.beam.portable import AppliedPTransform, composites, has_option
from rmqio.runners.checkpoints.options import CheckpointOptions
from rmqio.runners.report import Refused, Report, ReportOptions
from rmqio.runners.tracebacks.frames import hide_callers

_FINE: Final = 0
_REFUSED: Final = 2
_SAVEPOINT: Final = "savepoint_path"


def look_up_topics(pipeline: Any, options: PipelineOptions) -> None:
    """Looks up the topics of reads and writes. Raises `Refused` if one does not exist, with the nearest name.

    It does nothing with `--report`, which needs no broker, and for a job that resumes from a checkpoint: the brokers of
    its topics can be away, and then name servers know no more of these topics.
    """
    if options.view_as(ReportOptions).report or _resumes(options):
        return
    for node in composites(pipeline):
        _look_up(node)


def check_positions(pipeline: Any) -> None:
    """Raises `Refused` if two transforms commit the offsets that are the position of an exactly-once write."""
    committing = [node for node in composites(pipeline) if hasattr(node.transform, "commits")]
    for node in committing:
        for group, topic in sorted(getattr(node.transform, "positions", ())):
            others = [each for each in committing if each is not node and each.transform.commits(group, topic)]
            if others:
                raise Refused(
                    f"{node.full_label} is an exactly-once write, and {others[0].full_label} commits offsets of its "
                    f"group {group!r} for topic {topic!r}, too: messages could be stored twice. Give "
                    "LookBack(group=...) a group that nothing else uses"
                )


def check(report: Report, options: PipelineOptions) -> None:
    """Logs warnings of a report and raises `Refused`; with `--report`, prints it and ends the program.

    Raises:
      SystemExit: with `--report`; the status is 0, or 2 if the runner refuses the pipeline.
    """
    if options.view_as(ReportOptions).report:
        show(report)
    report.check()


def show(report: Report) -> NoReturn:
    """Prints a report and ends the program."""
    print(report.table(), flush=True)
    raise SystemExit(_REFUSED if report.refused else _FINE)


def _look_up(node: AppliedPTransform) -> None:
    look_up = getattr(node.transform, "look_up_topics", None)
    if look_up is None:
        return
    try:
        look_up()
    except LocalError as error:
        hide_callers()
        raise Refused(f"{node.full_label}: {error}") from None


def _resumes(options: PipelineOptions) -> bool:
    """Whether the job can continue from a checkpoint; that of a folder elsewhere is not looked into."""
    if has_option(options, _SAVEPOINT) and options.get_all_options(drop_default=True).get(_SAVEPOINT):
        return True
    folder = options.view_as(CheckpointOptions).checkpoint_dir
    if not folder:
        return False
    if "://" in folder and not folder.startswith("file://"):
        return True
    path = folder.removeprefix("file://")
    return os.path.isdir(path) and bool(os.listdir(path))
