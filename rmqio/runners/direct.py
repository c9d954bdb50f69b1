"""Beam's in-process runner; it first checks whether it can run the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions

from rmqio.repeats.endings import Ending
from rmqio.runners.beam import versions
from rmqio.runners.beam.in_process import FnApiRunner, followed, has_unbounded
from rmqio.runners.beam.patches import samplers_end
from rmqio.runners.beam.portable import portable_form, reads_among
from rmqio.runners.capabilities import Cell, Mode, Requirement, Verdict
from rmqio.runners.checkpoints.options import CheckpointOptions
from rmqio.runners.interrupts import interrupts_until_raised
from rmqio.runners.report import Report, compare
from rmqio.runners.submission import check, check_positions, look_up_topics
from rmqio.runners.tracebacks.failures import without_callers

_on_followed: Final[ContextVar[Callable[[list[Any]], None] | None]] = ContextVar("_on_followed", default=None)
"""What to do with the transforms whose stages have others behind them, in the pipeline that this thread runs."""
_NO_CHECKPOINTS: Final = (
    "--checkpoint_dir has no effect: this runner keeps none; reads can go on from the offsets of their group"
)
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
        report = self.report(portable_form(pipeline), options)
        check(report, options)
        report.warn_of_options()
        look_up_topics(pipeline, options)
        run = interrupts_until_raised()(super().run_pipeline)
        with Ending() as ending, samplers_end():
            token = _on_followed.set(lambda leaves: ending.awaited_by(reads_among(pipeline, leaves)))
            try:
                result = without_callers(lambda: run(pipeline, options))
            finally:
                _on_followed.reset(token)
            ending.come()
        return result

    def create_stages(self, pipeline_proto: Any) -> Any:
        context, stages = super().create_stages(pipeline_proto)
        then = _on_followed.get()
        # In a pipeline with endless elements, no end comes.
        if then is not None and not has_unbounded(pipeline_proto):
            then(followed(stages))
        return context, stages

    def report(self, pipeline: Any, options: PipelineOptions) -> Report:
        """Reports how this runner meets the needs of a pipeline in Beam's portable form."""
        workers = options.view_as(DirectOptions).direct_num_workers
        return compare(
            pipeline,
            Mode.DIRECT,
            of_options=[_NO_CHECKPOINTS] if options.view_as(CheckpointOptions).checkpoint_dir else [],
            instead=None if workers == 1 else {Requirement.ENDLESS_READS: _SEVERAL_WORKERS},
        )
