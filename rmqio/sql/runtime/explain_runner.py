"""Says what a runner does with a job, in a few words, above its report."""

from __future__ import annotations

from typing import Any, Final

from apache_beam.options.pipeline_options import StandardOptions

_PULLED: Final = "rows are computed in the batches in which they are pulled (up to some hundred messages)"
_MODES: Final = {
    "SparkRunner": (
        "On SparkRunner",
        "Spark jobs, one per shuffle; a task reads a range of a queue",
        _PULLED,
        "groups and joins are sorted by Spark, on disk if they are large; state ends with the job",
    ),
    "SparkRunner --streaming": (
        "On SparkRunner --streaming",
        "micro-batches of Structured Streaming, each of new ranges of the queues",
        _PULLED,
        "each shuffle is a stateful operator; its state is in --checkpoint_dir, and a micro-batch that fails is run "
        "again with the same ranges",
    ),
    "FlinkRunner": (
        "On FlinkRunner",
        "a stream of Flink, or a batch job if all reads end",
        _PULLED,
        "state by key is Flink's, and is in its checkpoints",
    ),
    "DirectRunner": (
        "On DirectRunner",
        "one process, stage after stage",
        _PULLED,
        "groups and joins are in memory, and ready when their input has ended",
    ),
}


def how_it_runs(pipeline: Any) -> str:
    """Returns lines about the pipeline's runner."""
    name = type(pipeline.runner).__name__
    name = {"FnApiRunner": "DirectRunner", "FlinkRunner": "FlinkRunner", "SparkRunner": "SparkRunner"}.get(name, name)
    options = pipeline.options.view_as(StandardOptions)
    if name == "SparkRunner" and options.streaming:
        name = "SparkRunner --streaming"
    head, *lines = _MODES.get(name, (f"On {name}", _PULLED))
    return "\n".join([head, *(f"    {each}" for each in lines)])
