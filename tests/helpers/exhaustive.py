"""Lists the tests that only `make test-exhaustive` runs: `make test` runs the scenario shorter, or on another runner.

A test that is long on its own has the marker `exhaustive` where it stands. This list gives the marker to those that
could go into `make test` if it had an hour.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Repeated(NamedTuple):
    """Tests whose scenario `make test` runs as well."""

    tests: str
    """A test or a file, below `tests/`."""
    only: tuple[str, ...] = ()
    """Only tests with one of these parameters, as in their ids; all tests if there are none."""
    instead: str = ""
    """The test that `make test` runs; by default the same with other parameters."""


BATCH_ON_SPARK_STREAMS_ON_FLINK: Final = (
    *("SparkRunner", "--runner=SparkRunner"),
    *("FlinkRunner --streaming", "FlinkRunner --parallelism=1 --streaming"),
)
"""`make test` runs what all runners do alike on the DirectRunner, on Spark with `--streaming` and on Flink without:
each engine, and both kinds of reading. `test_capabilities.py`, `test_pipelines_everywhere.py`, `sql/test_plan.py` and
`sql/test_sql.py` run in all modes."""
SPARK_STREAMS: Final = ("SparkRunner --streaming",)
FLINK_STREAMS: Final = ("FlinkRunner --streaming",)

REPEATED: Final = (
    # What all runners do alike.
    *(
        Repeated(each, BATCH_ON_SPARK_STREAMS_ON_FLINK)
        for each in (
            "runners/sql/test_dimensions.py::test_streams_meet_files_databases_and_topics",
            "runners/sql/test_failed_rows.py::test_rows_that_fail_after_a_join_or_a_group_are_dead_letters",
            "runners/sql/test_functions.py::test_functions_beside_the_script",
            "runners/sql/test_joins.py::test_joins_by_time_are_exact",
            "runners/sql/test_queries.py::test_queries_of_inputs_that_end",
            "runners/sql/test_transform.py::test_rows_of_messages_and_of_python",
            "runners/sql/test_updates.py::test_first_rows_of_what_ends_are_given_once",
            "runners/test_audit.py::test_each_fault_is_named_with_its_hop",
            "runners/test_connect.py::test_all_runners_write_each_row_once_and_the_dead_letter",
            "runners/test_correlate.py::test_correlations_are_found",
            "runners/test_enrich.py::test_all_runners_give_the_same_elements",
            "runners/test_rules.py::test_hits_are_those_of_the_reference",
            "runners/test_skew.py::test_nothing_is_lost_or_counted_twice",
        )
    ),
    # Streams: on one engine.
    Repeated("runners/sql/test_dimensions.py::test_a_topic_changes_under_a_job", SPARK_STREAMS),
    Repeated(
        "runners/sql/test_nexmark.py::test_all_queries_of_input_that_ends",
        instead="runners/sql/test_nexmark.py::test_streams",
    ),
    Repeated("runners/sql/test_nexmark.py::test_streams", FLINK_STREAMS),
    Repeated(
        "runners/sql/test_nexmark.py::test_windows_of_streams",
        instead="runners/sql/test_nexmark.py::test_streams",
    ),
    Repeated("runners/sql/test_sql.py::test_a_stream_joins_what_comes_later", SPARK_STREAMS),
    Repeated("runners/sql/test_updates.py::test_a_stream_updates_what_changes_and_deletes_what_goes", SPARK_STREAMS),
    Repeated(
        "runners/test_everywhere.py::test_filters_letters_and_new_queues_with_credentials_and_tls", ("Flink endless",)
    ),
    Repeated("runners/test_live_windows.py::test_sessions_and_sliding_windows_of_a_live_topic", ("flink",)),
    Repeated("runners/test_rules.py::test_rules_change_under_a_job", SPARK_STREAMS),
    # Faults: on one engine, or one fault of those that one code answers.
    Repeated("runners/delivery/test_broker_away.py::test_a_read_without_end", ("Direct", "Flink")),
    Repeated(
        "runners/delivery/test_broker_away.py::test_a_stream_in_plain_pyspark",
        instead="runners/pyspark/test_read.py::test_a_stream_rides_out_a_restart_of_its_broker",
    ),
    Repeated(
        "runners/delivery/test_broker_away.py::test_windows_of_sql_while_a_broker_hangs",
        instead="runners/delivery/test_broker_away.py::test_a_read_without_end",
    ),
    *(
        Repeated(
            f"runners/delivery/test_delivery.py::test_{end}_goes_on",
            ("Spark", "Spark --streaming", "Flink"),
            "runners/flink/test_runner.py::test_a_killed_job_goes_on_from_its_last_checkpoint",
        )
        for end in ("source", "sink")
    ),
    *(
        Repeated(
            f"runners/delivery/test_delivery.py::test_source_{queues}",
            instead="runners/delivery/test_delivery.py::test_source_several_queues",
        )
        for queues in ("single_queue", "idle_reader")
    ),
    Repeated("runners/delivery/test_delivery.py::test_source_worker_killed", ("Spark", "Flink")),
    Repeated(
        "runners/delivery/test_effectively_once.py::test_copies_after_a_restart_have_the_default_ids_of_their_originals",
        ("fails_and_starts_again",),
    ),
    Repeated("runners/delivery/test_exact_sink.py::test_nothing_is_lost_or_there_twice_whatever_is_killed", ("Flink",)),
    Repeated(
        "runners/flink/test_runner.py::test_a_stream_outlives_more_failures_than_a_batch_job",
        instead="runners/flink/test_runner.py::test_what_a_users_program_says_of_a_failure",
    ),
    Repeated("runners/flink/test_runner.py::test_what_a_users_program_says_of_a_failure", ("batch",)),
    Repeated("runners/spark/batch/test_rocketmq.py::test_a_read_rides_out_a_broker_that_is", ("paused",)),
    Repeated(
        "runners/spark/streaming/test_cut.py::test_a_micro_batch_that_was_cut_short_reads_the_same_when_it_is_run_again",
        instead="runners/spark/streaming/test_rocketmq.py"
        "::test_a_killed_driver_and_a_run_that_ends_early_lose_and_change_nothing",
    ),
    Repeated("runners/sql/test_exactly_once.py", instead="runners/delivery/test_exact_sink.py"),
    Repeated("runners/sql/test_queries.py::test_streams_and_a_restart", FLINK_STREAMS),
    Repeated("runners/test_audit.py::test_a_stream_that_is_killed_counts_what_went_through_once", SPARK_STREAMS),
    Repeated(
        "runners/test_connect.py::test_a_spark_that_is_killed_and_started_again_leaves_each_row_in_one_file",
        instead="runners/delivery/test_exact_sink.py",
    ),
    Repeated(
        "integration/reading/test_faults.py::test_an_endless_read_rides_out_a_broker_that_is",
        ("killed-500", "paused-500"),
    ),
    Repeated(
        "runners/delivery/test_effectively_once.py::test_an_endless_read_drops_what_it_has_seen_before", ("on_flink",)
    ),
    Repeated(
        "runners/delivery/test_replica_reads.py::test_a_bounded_read_is_the_replicas_while_the_master_is_gone",
        ("--runner=SparkRunner", "--runner=SparkRunner --streaming", "--runner=FlinkRunner"),
    ),
    Repeated(
        "runners/sql/test_joins.py::test_a_killed_job_keeps_windows_and_joins_and_idle_queues_end_them",
        instead="runners/sql/test_queries.py::test_streams_and_a_restart",
    ),
    # Long ways to the same code.
    Repeated("integration/local/test_local_broker.py::test_other_ports_are_taken_if_somebody_was_faster", ("1",)),
    Repeated(
        "integration/test_wheel.py::test_public_names_come_from_the_wheel",
        instead="integration/test_wheel.py::test_the_wheel_holds_data_files_and_no_tests",
    ),
    Repeated(
        "runners/flink/test_jobserver.py::test_several_run_side_by_side_with_properties_of_flinks_and_nothing_is_left",
        instead="runners/flink/test_runner.py::test_a_job_server_is_used_again_and_so_are_options",
    ),
    Repeated(
        "runners/flink/test_sql_oracle.py::test_expressions_have_the_types_and_values_of_flink",
        ("UTC",),
        "runners/flink/test_sql_oracle.py::test_queries_have_the_rows_of_flink",
    ),
    Repeated(
        "runners/spark/batch/test_memory.py::test_a_group_larger_than_the_workers_memory_can_be_read_twice",
        instead="runners/spark/batch/test_memory.py::test_a_side_input_that_is_too_large_says_so",
    ),
    Repeated(
        "runners/spark/streaming/test_province.py"
        "::test_a_run_with_a_stop_ends_by_itself_and_bad_input_goes_to_the_dead_letter_topic",
        instead="runners/spark/streaming/test_province.py::test_ctrl_c_lets_the_running_micro_batch_finish",
    ),
    Repeated(
        "runners/spark/test_session.py::test_its_spark_serves_later_pipelines_and_says_what_it_cannot_change",
        instead="runners/spark/test_session.py::test_an_active_session_is_used_and_left_as_it_was",
    ),
    Repeated(
        "runners/spark/test_class_data.py::test_the_third_program_uses_what_the_second_has_made_and_a_broken_file_is_left_out",
        instead="runners/spark/test_class_data.py::test_a_java_that_refuses_the_options_is_started_without_them",
    ),
    Repeated("runners/spark/test_session.py::test_a_signal_ends_all_that_a_running_pipeline_has_started", ("15",)),
    Repeated(
        "runners/spark/streaming/test_several_reads.py::test_a_second_ctrl_c_stops_at_once",
        instead="runners/spark/streaming/test_province.py::test_ctrl_c_lets_the_running_micro_batch_finish",
    ),
    Repeated(
        "runners/sql/test_jobs.py::test_a_stream_is_upgraded_from_its_checkpoint_and_what_does_not_fit_is_refused",
        instead="runners/sql/test_queries.py::test_streams_and_a_restart",
    ),
)


def is_repeated(node_id: str) -> bool:
    """Whether a test is in the list. `node_id`: pytest's."""
    path, _, of = node_id.removeprefix("tests/").partition("[")
    given = of.removesuffix("]")
    return any(
        path.startswith(each.tests) and (not each.only or any(_has(given, only) for only in each.only))
        for each in REPEATED
    )


def _has(given: str, parameter: str) -> bool:
    """Whether the parameters of a test, which hyphens join, are or begin with one."""
    return given == parameter or given.startswith(f"{parameter}-")
