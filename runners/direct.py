"""Beam's in-process runner; it first checks whether it can run the pipeline."""

from __future__ import annotations

from typing import Any, Final

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions

from rmqio.runners.beam import versions
from rmqio.runners.beam.in_process import FnApiRunner
from rmqio.runners.beam.portable import portable_form
from rmqio.runners.capabilities import Cell, Mode, Requirement, Verdict
from rmqio.runners.interrupts import interrupts_until_raised
from rmqio.runners.report import Report, compare
from rmqio.runners.submission import check, check_positions, look_up_topics
from rmqio.runners.tracebacks.failures import without_callers

_SEVERAL_WORKERS: Final = Cell(
    Verdict.REFUSED,
    "it would end at once and read nothing; leave --direct_num_workers at 1, or give the read a stop (--stop latest)",
    (),
)


class DirectRunner(FnApiRunner):
    """Runs pipelines in this process. Beam's own runner of this name can choose another one, and download it.

    Raises `Refused` for a pipeline that would wait forever, and for one that reads a topic that does not exist. It
    raises an error of user code as it is, with the transform's name and without Beam's frames. Raises `LocalError` on a
    Beam that it was not tested with, unless `RMQIO_UNTESTED_VERSIONS` is 1.
    """

    looks_up_topics: Final = True
    """For transforms, which need not do in a worker what was done when the pipeline was submitted."""

    def run_pipeline(self, pipeline: Any, options: PipelineOptions) -> Any:
        """Runs the pipeline to its end and returns its result."""
        versions.check("DirectRunner")
        check_positions(pipeline)
        check(self.report(portable_form(pipeline), options), options)
        look_up_topics(pipeline, options)
        run = interrupts_until_raised()(super().run_pipeline)
        return without_callers(lambda: run(pipeline, options))

    def report(self, pipeline: Any, options: PipelineOptions) -> Report:
        """Reports how this runner meets the needs of a pipeline in Beam's portable form."""
        workers = options.view_as(DirectOptions).direct_num_workers
        return compare(
            pipeline, Mode.DIRECT, instead=None if workers == 1 else {Requirement.ENDLESS_READS: _SEVERAL_WORKERS}
        )
