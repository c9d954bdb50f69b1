"""The pipeline of a copy."""

from __future__ import annotations

from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from rmqio.connect.copying.checking import is_endless
from rmqio.connect.copying.sinks import apply, target_of
from rmqio.connect.copying.sources import source_of
from rmqio.connect.copying.urls import End
from rmqio.errors import LocalError
from rmqio.runners.program import count, count_written, run_program
from rmqio.transforms.parts import is_in_process as is_direct


def copy(
    source: End,
    target: End,
    options: PipelineOptions,
    *,
    follow: bool = False,
    where: dict[str, Any] | None = None,
    dead_letter_topic: str | None = None,
    verbose: bool = False,
) -> int:
    """Runs the copy, prints a line with counts, and returns the exit status.

    Args:
      where: name server and security of RocketMQ, as arguments of the transforms.
      follow: whether the copy goes on with what arrives later.
    """
    where = where or {}
    is_counted = target.kind != "console"

    def build(pipeline: Any) -> None:
        endless = is_endless(source, follow=follow)
        if endless and target.kind == "file" and is_direct(pipeline):
            raise LocalError(
                "the Direct runner closes no window of a stream: to follow a topic into files, give "
                "--runner=SparkRunner --streaming or --runner=FlinkRunner --streaming"
            )
        found = target_of(target, source, endless=endless, where=where, dead_letter_topic=dead_letter_topic)
        apply(pipeline | "Read" >> source_of(source, follow=follow, where=where), found)

    def summary(result: Any) -> str:
        if not is_counted:
            return f"{source.shown} is printed"
        refused = count(result, "row_failures") + count(result, "send_failures")
        more = f", {refused} refused, which are in {dead_letter_topic}" if refused else ""
        is_topic = target.kind == "rocketmq"
        written = count_written(result, step="Write") if is_topic else count(result, "rows_written", step="Write")
        return f"{written} copied from {source.shown} to {target.shown}{more}"

    return run_program("rmqio copy", options, build, summary, verbose=verbose, prints_data=not is_counted)
