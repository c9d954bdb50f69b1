"""The option that runners of unbounded pipelines share."""

from __future__ import annotations

import argparse

from apache_beam.options.pipeline_options import PipelineOptions


class CheckpointOptions(PipelineOptions):
    """`--checkpoint_dir`, for Spark and Flink alike."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--checkpoint_dir",
            metavar="PATH",
            help="Where a streaming pipeline keeps offsets and state; after a restart, it resumes from there.",
        )
