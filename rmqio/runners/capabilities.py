"""Data: how each runner meets what a pipeline may need, and the tests that show it.

`rmqio.runners.submission` compares a pipeline with `TABLE`, and docs/capabilities.md shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple


class Mode(Enum):
    """A runner, and how it runs a pipeline."""

    DIRECT = "DirectRunner"
    SPARK = "SparkRunner"
    SPARK_STREAMING = "SparkRunner --streaming"
    FLINK = "FlinkRunner, batch job"
    FLINK_STREAMING = "FlinkRunner, stream"


class Requirement(Enum):
    """A capability that a pipeline may need from a runner; each is a row of the table."""

    ENDING_READS = "reads that end"
    ENDLESS_READS = "reads without end"
    SHUFFLES_BEHIND = "shuffles after a read without end"
    """GroupByKey, Flatten of several, a side input made of it, a splittable DoFn."""
    UNBOUNDED = "other unbounded sources"
    """It is unknown whether they end."""
    SPLITTABLE = "splittable DoFns that defer themselves"
    FINALIZATION = "bundle finalization"
    STATE = "state by key"
    ORDERED_STATE = "ordered lists as state"
    EVENT_TIMERS = "event-time timers, bounded input"
    LIVE_EVENT_TIMERS = "event-time timers, unbounded input"
    CLOCK_TIMERS = "processing-time timers, bounded input"
    LIVE_CLOCK_TIMERS = "processing-time timers, unbounded input"
    SIDE_INPUTS = "side inputs"
    MERGING_WINDOWS = "windows that merge (sessions)"
    UNMERGED_STATE = "state and timers in windows that merge"
    """Without a preceding GroupByKey, each element still has a window of its own."""
    KEPT_STATE = "state of unbounded input, kept over a restart"


class Verdict(Enum):
    """How a runner meets a need."""

    YES = "yes"
    WARNED = "warned"
    REFUSED = "refused"
    NONE = "-"
    """The need cannot occur in this mode, or something before it is refused."""


class Cell(NamedTuple):
    """A need in a mode."""

    verdict: Verdict
    text: str
    """The behaviour, and the advice about it; may be empty."""
    tests: tuple[str, ...]
    """The tests that show it, as pytest names them."""


Row = Mapping[Mode, Cell]


def _yes(*tests: str, text: str = "") -> Cell:
    return Cell(Verdict.YES, text, _ids(tests))


def _warned(text: str, *tests: str) -> Cell:
    return Cell(Verdict.WARNED, text, _ids(tests))


def _refused(text: str, *tests: str) -> Cell:
    return Cell(Verdict.REFUSED, text, _ids(tests))


def _none(text: str) -> Cell:
    return Cell(Verdict.NONE, text, ())


def _ids(tests: tuple[str, ...]) -> tuple[str, ...]:
    """Returns ids of tests; `test_x.py::test_y` is in tests/runners."""
    return tuple(test if test.startswith("tests/") else f"tests/runners/{test}" for test in tests)


def _row(direct: Cell, spark: Cell, spark_streaming: Cell, flink: Cell, flink_streaming: Cell) -> Row:
    return MappingProxyType(dict(zip(Mode, (direct, spark, spark_streaming, flink, flink_streaming), strict=True)))


_HERE: Final = "test_capabilities.py::test_"
_ENDLESS: Final = "direct/test_endless_reads.py::test_"
_REFUSALS: Final = "tests/unit/runners/test_report.py::test_what_is_refused_and_what_is_warned_of"
_SUITE: Final = "spark/batch/test_beam_suite.py::TestOnSpark::test_"
_STREAM: Final = "spark/streaming/test_pipelines.py::test_"
_EVERYWHERE: Final = "test_pipelines_everywhere.py::test_the_sink_holds_the_same"
_SPARK_KILLED: Final = (
    "spark/streaming/test_rocketmq.py::test_a_killed_driver_and_a_run_that_ends_early_lose_and_change_nothing"
)
_FLINK_KILLED: Final = "flink/test_runner.py::test_a_killed_job_goes_on_from_its_last_checkpoint"
_SPARK_SDF: Final = (
    "spark/batch/test_capability_cases.py::test_a_splittable_dofn_with_a_side_input_that_checkpoints_and_finalizes"
)
_SPARK_TIMERS: Final = "spark/batch/test_capability_cases.py::test_timers_of_both_kinds_fire_without_waiting"
_LIVE_WINDOWS: Final = "test_live_windows.py::test_sessions_and_sliding_windows_of_a_live_topic"
_LIVE_SIDES: Final = (
    "spark/streaming/test_several_reads.py::test_a_side_input_of_a_live_topic_and_finalizers_of_a_stream_that_goes_on"
)
_FLINK_LOST: Final = "flink/test_cluster.py::test_a_lost_task_manager_changes_nothing"
_FLINK_TIMERS: Final = f"{_HERE}timers_of_a_stream_wait_for_their_time_and_its_bundles_are_finalized"

_NOW: Final = "they fire at once, whatever time they are set to"
_UNMERGED: Final = (
    "each element still has a window, and with it a state, of its own: group by key before it, or keep state in "
    "windows that do not merge"
)
_A_STREAM: Final = "Flink runs it as a stream"

TABLE: Final[Mapping[Requirement, Row]] = MappingProxyType(
    {
        Requirement.ENDING_READS: _row(
            _yes(_EVERYWHERE),
            _yes(_EVERYWHERE),
            _yes(_EVERYWHERE),
            _yes(_EVERYWHERE),
            _yes(
                _EVERYWHERE,
                text="while such a read runs there are no checkpoints: after a failure, the job starts from scratch",
            ),
        ),
        Requirement.ENDLESS_READS: _row(
            _yes(
                "tests/integration/pipelines/test_province.py::test_an_endless_run_writes_while_it_reads_and_ends_on_ctrl_c"
            ),
            _refused("give --streaming, or the read a stop: --stop latest, stop=StopAt.latest()", _REFUSALS),
            _yes(_SPARK_KILLED),
            _none(_A_STREAM),
            _yes(_FLINK_KILLED),
        ),
        Requirement.SHUFFLES_BEHIND: _row(
            _refused(
                "it would wait forever for the end of the read; give the read a stop (--stop latest), or use "
                "SparkRunner --streaming or FlinkRunner",
                f"{_ENDLESS}a_shuffle_behind_a_read_without_end_would_wait_for_ever",
                _REFUSALS,
            ),
            _none("the read is refused"),
            _yes(_SPARK_KILLED),
            _none(_A_STREAM),
            _yes(_FLINK_KILLED),
        ),
        Requirement.UNBOUNDED: _row(
            _warned(
                "it is run until it ends by itself, and the steps after a shuffle get its elements only then",
                f"{_HERE}an_unbounded_source_that_ends",
            ),
            _warned(
                "it is run until it ends by itself, and the steps after a shuffle get its elements only then; "
                "--streaming does not wait",
                f"{_SUITE}unbounded_source_read",
            ),
            _yes(f"{_STREAM}an_unbounded_splittable_dofn_runs_by_its_own_clock"),
            _none(_A_STREAM),
            _yes(
                "flink/test_runner.py::test_cancel_ends_the_job_in_flink_too",
                text="the job continues when it has ended",
            ),
        ),
        Requirement.SPLITTABLE: _row(
            _yes(f"{_HERE}a_splittable_dofn_that_defers_itself"),
            _yes(_SPARK_SDF, f"{_SUITE}sdf_with_sdf_initiated_checkpointing"),
            _yes(
                f"{_STREAM}an_unbounded_splittable_dofn_runs_by_its_own_clock",
                text="it runs once a micro-batch; if that fails half way it may emit other elements than before",
            ),
            _yes(f"{_HERE}a_splittable_dofn_that_defers_itself"),
            _yes(f"{_HERE}a_splittable_dofn_that_defers_itself"),
        ),
        Requirement.FINALIZATION: _row(
            _yes(f"{_HERE}bundles_are_finalized"),
            _yes(f"{_SUITE}register_finalizations", _SPARK_SDF, text="in the driver; finalizers must be picklable"),
            _yes(
                _LIVE_SIDES,
                f"{_STREAM}finalizers_run_when_spark_has_committed_the_last_micro_batch_too",
                text="in the driver, when Spark has committed; finalizers must be picklable",
            ),
            _none(_A_STREAM),
            _yes(_FLINK_TIMERS, f"{_HERE}bundles_are_finalized", text="after each checkpoint"),
        ),
        Requirement.STATE: _row(
            _yes(f"{_HERE}state_by_key"),
            _yes("spark/batch/test_runner.py::test_state_of_every_kind"),
            _yes(f"{_STREAM}state_and_timers_of_both_kinds"),
            _yes(f"{_HERE}state_by_key"),
            _yes(f"{_HERE}state_by_key"),
        ),
        Requirement.ORDERED_STATE: _row(
            _yes(f"{_HERE}ordered_lists_as_state"),
            _yes("spark/batch/test_runner.py::test_state_of_every_kind"),
            _yes(_SPARK_KILLED),
            *[
                _refused(
                    "Beam's job server does not support them: use BagStateSpec",
                    f"{_HERE}ordered_lists_as_state_fail_on_flink",
                )
            ]
            * 2,
        ),
        Requirement.EVENT_TIMERS: _row(
            _yes(f"{_HERE}event_time_timers"),
            _yes(_SPARK_TIMERS, f"{_SUITE}pardo_timers"),
            _yes(f"{_STREAM}state_and_timers_of_both_kinds"),
            _yes(f"{_HERE}event_time_timers"),
            _yes(f"{_HERE}event_time_timers"),
        ),
        Requirement.LIVE_EVENT_TIMERS: _row(
            _warned(_NOW, f"{_ENDLESS}timers_behind_a_read_without_end_fire_at_once"),
            _yes(_SPARK_TIMERS, text="when the input has ended"),
            _yes(_SPARK_KILLED),
            _none(_A_STREAM),
            _yes(_FLINK_TIMERS, _FLINK_KILLED),
        ),
        Requirement.CLOCK_TIMERS: _row(
            _warned(_NOW, f"{_HERE}processing_time_timers_of_what_ends_do_not_wait"),
            _warned("time does not pass: they fire at the end of the input, without waiting", _SPARK_TIMERS),
            _yes(f"{_STREAM}state_and_timers_of_both_kinds"),
            _warned(
                "time does not pass: they fire at the end of the input, without waiting",
                f"{_HERE}processing_time_timers_of_what_ends_do_not_wait",
            ),
            _refused(
                "they never fire, and the job never ends; omit --streaming (and the consumer group), or the stop",
                f"{_HERE}a_processing_time_timer_of_what_ends_would_keep_flinks_stream_for_ever",
                _REFUSALS,
            ),
        ),
        Requirement.LIVE_CLOCK_TIMERS: _row(
            _warned(_NOW, f"{_ENDLESS}timers_behind_a_read_without_end_fire_at_once"),
            _warned("time does not pass: they fire at the end of the input, without waiting", _SPARK_TIMERS),
            _yes(_SPARK_KILLED),
            _none(_A_STREAM),
            _yes(_FLINK_TIMERS, _FLINK_KILLED),
        ),
        Requirement.SIDE_INPUTS: _row(
            _yes(f"{_HERE}side_inputs"),
            _yes(f"{_SUITE}pardo_side_inputs", text="up to --spark_side_input_limit_mb"),
            _yes(_LIVE_SIDES, f"{_STREAM}side_inputs_of_the_global_window_and_of_windows"),
            _yes(f"{_HERE}side_inputs"),
            _refused(
                "Beam's job server fails at the first checkpoint, which cannot hold side inputs; look it up inside "
                "the DoFn, or keep it in state by key",
                f"{_HERE}a_checkpoint_with_a_side_input_fails_on_flink",
                _REFUSALS,
            ),
        ),
        Requirement.MERGING_WINDOWS: _row(
            _yes(f"{_HERE}windows_that_merge"),
            _yes(f"{_SUITE}windowing", f"{_SUITE}custom_merging_window"),
            _yes(_LIVE_WINDOWS),
            _yes(f"{_HERE}windows_that_merge"),
            _yes(_LIVE_WINDOWS, f"{_HERE}windows_that_merge"),
        ),
        Requirement.UNMERGED_STATE: _row(*[_refused(_UNMERGED, _REFUSALS)] * len(Mode)),
        Requirement.KEPT_STATE: _row(
            _warned("it is in memory: a restart starts from scratch", _REFUSALS),
            _warned("only --streaming keeps it: a restart starts from scratch", _REFUSALS),
            _yes(_SPARK_KILLED, text="exactly once, in --checkpoint_dir"),
            _none(_A_STREAM),
            _yes(_FLINK_KILLED, _FLINK_LOST, text="exactly once, in --checkpoint_dir"),
        ),
    }
)
