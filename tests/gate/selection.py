"""What the gate runs of all tests; `make test-all` runs the rest, too.

Of the unit and contract tests it runs those that need no server and are not slow, but for `LEFT_OUT`, and of `SAMPLED`
the first and the last parameters. Property tests have a fifth of their examples. Of the tests on real brokers and
runners it runs those of `GATE`, by claim: each claim once, on the runners and in the modes where a mistake would be
another one. They carry the marker `gate`. Two lanes run at the same time: `spark` has one Spark in its process, and
`broker` all the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

LANES: Final = ("broker", "spark")
JOBS: Final = ("documents", "programs", "unit", *LANES)
_SERVERS: Final = frozenset({"broker", "spark", "slow", "cluster", "systems", "examples", "exhaustive"})
"""Markers of tests that are in a lane, or not in the gate."""


class Part(NamedTuple):
    """Tests of one claim.

    `tests`: a file, or tests of one, below `tests/`. `only`: parameters, as in their ids; a test has one of them.
    `but`: names of tests, or parameters, that are left out.
    """

    tests: str
    only: tuple[str, ...] = ()
    but: tuple[str, ...] = ()


DIRECT: Final = ("DirectRunner", "--runner=DirectRunner")
DIRECT_AND_STREAM: Final = (*DIRECT, "SparkRunner --streaming", "--runner=SparkRunner --streaming")

GATE: Final[dict[str, tuple[Part, ...]]] = {
    "clients on a real broker keep the contract of the interfaces": (
        Part("contract/", ("real",)),
        Part("integration/client/test_reading.py"),
        Part("integration/client/test_offsets.py"),
        Part("integration/client/test_producer.py::test_many_batches_in_flight_from_many_threads"),
        Part(
            "integration/client/test_transactions.py",
            but=(
                "test_a_transaction_of_java_reads_alike",
                "test_java_reads_our_transaction",
                "test_we_answer_for_java_and_java_for_us",
                "test_a_local_transaction_that_takes_longer_than_the_broker_waits",
            ),
        ),
    ),
    "each fault of the network has its error, and nothing is lost": (
        Part("integration/faults/test_matrix.py::test_sends"),
        Part("integration/faults/test_matrix_reading.py"),
        Part("integration/faults/test_broker_refusals.py"),
    ),
    "a broker is killed, and nothing is lost": (
        Part("integration/reading/test_faults.py::test_a_bounded_read_rides_out_a_broker_that_is", ("killed",)),
        Part(
            "integration/client/test_producer.py::test_nothing_acknowledged_is_lost_when_the_broker_is_killed_and_restarted"
        ),
    ),
    "reads begin, filter, end and commit as their options say": (
        Part("integration/reading/test_starts.py"),
        Part("integration/reading/test_filters.py"),
        Part("integration/reading/test_commits.py"),
        Part(
            "integration/reading/test_endless.py",
            but=("test_seven_idle_queues_do_not_hold_up_the_eighth",),
        ),
    ),
    "writes send each element once, and what cannot be sent is a dead letter": (
        Part("integration/writing/test_pipeline.py"),
        Part("integration/writing/test_dead_letters.py"),
    ),
    "Java reads our messages, and we read those of Java": (
        Part("integration/java/test_interop.py"),
        Part("integration/java/test_kinds.py::test_an_inner_batch_of_java_reads_alike"),
        Part("integration/java/test_kinds.py::test_java_reads_our_inner_batch"),
        Part("integration/serde/test_avro_java.py"),
    ),
    "the command line says and does what it promises": (
        Part("integration/cli/", but=("test_a_command_names_the_broker_that_takes_no_filter",)),
        Part("integration/test_commands.py", ("docs/operate/find.md", "docs/operate/watch.md", "rmqio produce --help")),
        Part("integration/sql/test_pushdown.py"),
        Part(
            "integration/test_mistakes.py",
            (
                *("broker away", "a port that is no RocketMQ", "misspelt runner", "topic", "group", "tag expression"),
                *("column", "a table option", "a start offset beyond the end", "TLS to a plain port"),
                *("body too large", "Java too old", "checkpoint folder of another pipeline"),
            ),
        ),
    ),
    "a local broker starts, restarts, and leaves nothing behind": (
        Part("integration/local/test_local_broker.py::test_both_answer_once_started_and_nothing_is_left_once_stopped"),
        Part(
            "integration/local/test_local_broker.py::test_only_the_loopback_interface_is_listened_on_and_no_ha_port_is_open"
        ),
        Part("integration/local/test_local_broker.py::test_a_topic_that_the_broker_refuses_is_an_error_with_its_words"),
        Part(
            "integration/local/test_local_broker.py::test_a_killed_broker_is_gone_until_restarted_with_its_topics_on_the_same_ports"
        ),
        Part("integration/local/test_local_broker.py::test_nothing_outlives_a_parent_that_is_killed"),
        Part("integration/local/test_local_broker.py::test_the_command_prints_the_address_and_stops_on_a_signal"),
    ),
    "province.py, started as documents write it, gives each address one province": (
        Part("integration/pipelines/test_province.py"),
        Part("integration/pipelines/test_yaml.py", ("DirectRunner",)),
    ),
    "a program of the documents takes its runner from the command line": (
        Part("integration/pipelines/test_snippet.py", ("FlinkRunner",)),
    ),
    "values go to databases and come back, and refused rows go out alone": (
        Part("integration/connect/test_databases.py::test_every_type_is_written_and_read_again"),
        Part("integration/connect/test_databases.py::test_what_the_database_refuses_goes_out_alone"),
        Part(
            "integration/connect/test_databases.py::test_numbers_of_json_keep_all_their_digits_where_the_column_has_room"
        ),
    ),
    "credentials and TLS": (
        Part("integration/test_security.py"),
        Part("runners/security/test_secured.py", but=("DirectRunner", "test_sql_with_credentials_and_tls")),
    ),
    "the same pipeline in all modes": (
        Part("runners/test_everywhere.py"),
        Part("runners/test_pipelines_everywhere.py", ("province", "windowed_orders")),
        Part("runners/sql/test_sql.py::test_every_kind_of_window_is_exact"),
    ),
    "a stream goes on where it was stopped or killed, whatever was killed": (
        Part("runners/delivery/test_delivery.py::test_source_goes_on", ("Flink",)),
        Part("runners/delivery/test_delivery.py::test_sink_goes_on", ("Flink",)),
        Part(
            "runners/delivery/test_exact_sink.py::test_nothing_is_lost_or_there_twice_whatever_is_killed",
            ("Spark --streaming",),
        ),
    ),
    "features on the DirectRunner, and on Spark streams where they keep state": (
        Part("runners/test_audit.py::test_each_fault_is_named_with_its_hop", DIRECT),
        Part("runners/test_connect.py", DIRECT),
        Part("runners/test_correlate.py::test_correlations_are_found", DIRECT),
        Part("runners/test_enrich.py", DIRECT),
        Part("runners/test_rules.py", DIRECT),
        Part("runners/test_skew.py", DIRECT),
        Part("runners/sql/test_dimensions.py::test_streams_meet_files_databases_and_topics", DIRECT),
        Part("runners/sql/test_failed_rows.py", DIRECT),
        Part("runners/sql/test_functions.py", DIRECT),
        Part("runners/sql/test_joins.py::test_joins_by_time_are_exact", DIRECT_AND_STREAM),
        Part("runners/sql/test_plan.py", DIRECT),
        Part("runners/sql/test_queries.py::test_queries_of_inputs_that_end", DIRECT_AND_STREAM),
        Part("runners/sql/test_transform.py", DIRECT_AND_STREAM),
        Part("runners/sql/test_updates.py::test_first_rows_of_what_ends_are_given_once", DIRECT),
        Part("runners/direct/"),
    ),
    "Flink": (
        Part("runners/flink/test_runner.py::test_a_batch_job_and_its_metrics"),
        Part("runners/flink/test_runner.py::test_a_stream_that_ends_ends"),
        Part("runners/flink/test_runner.py::test_a_failure_is_reported_and_the_server_is_free_again"),
        Part("runners/flink/test_runner.py::test_ctrl_c_ends_a_users_program_with_one_line"),
        Part("runners/flink/test_runner.py::test_a_second_one_on_the_same_checkpoints_is_refused"),
        Part("runners/flink/test_runner.py::test_a_savepoint_that_is_not_there_is_refused"),
        Part("runners/flink/test_sql_oracle.py::test_calls_of_a_grid_are_those_of_flink"),
        Part("runners/test_capabilities.py", ("direct",)),
    ),
    "plain PySpark": (
        Part(
            "runners/pyspark/test_read.py",
            but=(
                "test_a_queue_that_is_added_is_read_from_its_start",
                "test_a_stream_rides_out_a_restart_of_its_broker",
            ),
        ),
        Part(
            "runners/pyspark/test_write.py",
            but=("test_a_write_rides_out_a_restart_of_its_broker", "test_pushed_filters_give_the_same_and_read_less"),
        ),
        Part("runners/pyspark/test_avro.py", but=("test_a_stream_has_typed_columns_and_keeps_its_place",)),
        Part("runners/pyspark/test_enrich.py"),
    ),
    "the Spark runner runs Beam's model": (
        Part("runners/spark/batch/test_runner.py"),
        Part("runners/spark/batch/test_capability_cases.py"),
        *(
            Part(f"runners/spark/batch/test_beam_suite.py::TestOnSpark::test_{each}")
            for each in (
                *("combine_per_key", "create", "custom_merging_window", "flatten", "gbk_side_input", "group_by_key"),
                *(
                    "large_elements",
                    "metrics",
                    "multimap_side_input",
                    "pardo_large_input",
                    "pardo_side_and_main_outputs",
                ),
                *(
                    "pardo_state_only",
                    "pardo_timers",
                    "pardo_windowed_side_inputs",
                ),
                *("register_finalizations", "reshuffle", "sdf_with_watermark_tracking", "windowing", "windowed_pardo"),
            )
        ),
        Part(
            "runners/spark/batch/test_processes.py",
            but=("stream", "test_a_worker_that_has_run_a_stage_runs_the_next_pipelines_too"),
        ),
    ),
    "reads and writes on Spark": tuple(
        Part(f"runners/spark/batch/test_rocketmq.py::test_{each}")
        for each in (
            "earliest_to_latest_is_everything_once_and_in_order",
            "group_offsets_and_the_reset_where_there_are_none",
            "a_stop_within_what_is_filtered_out_ends_the_read",
            "queues_are_read_in_several_processes",
            "what_the_broker_refuses_fails_and_the_rest_arrives",
            "records_written_twice_carry_the_same_ids",
        )
    ),
    "Spark streams": (
        Part("runners/spark/streaming/test_pipelines.py"),
        Part("runners/spark/streaming/test_source.py"),
        Part(
            "runners/spark/streaming/test_several_reads.py::test_two_reads_meet_in_sliding_windows_and_go_to_two_sinks"
        ),
        Part(
            "runners/spark/streaming/test_several_reads.py::"
            "test_keys_find_their_state_again_in_a_session_with_another_number_of_partitions"
        ),
        Part("runners/spark/streaming/test_province.py::test_ctrl_c_lets_the_running_micro_batch_finish"),
        Part(
            "unit/runners/spark/streaming/",
            but=(
                "test_state_does_not_grow_with_the_number_of_micro_batches",
                "test_the_same_comes_out_whether_accumulators_are_merged_or_not",
            ),
        ),
        Part("unit/runners/spark/worker/fusion/test_fused_dofns.py", ("700",)),
    ),
}


LEFT_OUT: Final = (
    # Random data, compared with DuckDB, Flink or Vectorscan. Tests beside them have chosen data.
    "unit/rules/match/test_regex_classes.py::test_random_expressions_mean_the_same_with_and_without_vectorscan",
    "unit/sql/runtime/groups/test_json_aggregates.py::test_aggregates_are_those_of_flink",
    "unit/sql/runtime/joins/test_subqueries.py::test_queries_give_what_duckdb_gives",
    "unit/sql/runtime/test_composed_queries.py",
    "unit/sql/transform/test_oracle.py",
    # Long texts and many threads.
    "unit/client/offsets/test_look.py::test_many_threads_look_at_once",
    "unit/rules/formats/test_refusals.py::test_conditions_of_sql_may_be_long_but_not_too_deep",
    "unit/rules/formats/test_refusals.py::test_places_in_a_text_of_many_rules_are_found_at_once",
    "unit/sql/planning/test_depth.py::test_long_expressions_run_on_a_worker",
    # They wait for seconds, or start programs that other tests start, too.
    "unit/client/offsets/test_breaker.py::test_a_broker_that_always_answers_late_is_not_waited_for_again",
    "unit/connect/files/test_residues.py::test_a_program_that_is_killed_and_started_again_leaves_each_row_once",
    "unit/connect/kafka/test_streams.py::test_a_broker_that_is_far_away_is_read_though_each_bundle_connects_again",
    "unit/enrich/live/test_topic.py::test_a_table_begins_anew_with_its_topic[100000]",
    "unit/enrich/live/test_topic.py::test_a_table_that_begins_anew_waits_for_all_brokers",
    "unit/jobs/test_command.py::test_a_folder_is_run_until_a_signal",
    "unit/sql/lookup/test_loading.py::test_a_broker_that_is_away_holds_up_no_rows_of_others",
    # Tools of tests and benchmarks.
    *(f"unit/tools/test_{each}" for each in ("bench_", "chaos_", "fuzz_", "helpers_modes")),
    "unit/tools/test_gate_sample.py::test_parameters_that_are_other_code_are_there",
)
"""Unit tests that only `make test-all` runs, because they take seconds each."""

SAMPLED: Final = (
    "contract/faults/test_reading.py::test_an_offset_request_survives",
    "contract/faults/test_sends.py::test_a_send_survives",
    "unit/enrich/table/test_tables.py::test_it_gives_what_a_dict_gives",
    "unit/rules/match/test_engines_agree.py::test_hits_are_those_of_the_reference",
    "unit/rules/match/test_engines_agree.py::test_columns_find_what_rows_find",
    "unit/rules/match/test_engines_agree.py::test_a_joined_column_finds_what_rows_find",
    "unit/rules/match/test_engines_agree.py::test_keywords_of_an_event_are_found_at_once",
    "unit/rules/match/test_engines_agree.py::test_what_ends_with_the_text_is_found",
    "unit/rules/match/test_regex_classes.py",
    "unit/runners/beam/test_in_process.py",
    "unit/runners/beam/test_timers_apart.py",
    "unit/runners/spark/worker/fusion/test_assigning.py::test_a_chain_with_windows",
    "unit/runners/spark/worker/fusion/test_failures.py",
    "unit/runners/spark/worker/test_task.py",
    "unit/runners/test_exactly_once.py::test_other_groups_and_topics_are_accepted",
    "unit/serde/test_contract.py",
    "unit/sql/functions/test_patterns.py::test_a_text_that_takes_too_long_makes_its_row_bad",
    "unit/sql/runtime/groups/test_grouping_sets.py::test_a_group_of_no_rows_is_one_row",
    "unit/sql/runtime/joins/test_joins.py",
    "unit/sql/runtime/test_nexmark.py::test_which_queries_a_stream_can_have",
    "unit/sql/shell/test_terminal.py",
    "unit/sql/syntax/test_tables.py",
    "unit/transforms/test_write.py",
    "unit/wire/stored/test_room.py::test_an_offset_to_go_on_at_that_cannot_be_is_refused",
)
"""Unit tests of which the gate runs the first and the last parameters: others are more data for the same code, but for
`OTHER_CODE`."""

OTHER_CODE: Final[Mapping[str, tuple[str, ...]]] = {
    "contract/faults/test_sends.py": ("batch", "submit"),
    "unit/enrich/table/test_tables.py": (*("dictionary", "fixed", "int64", "uint64", "bool", "decimal", "text-int64"),),
    "unit/runners/beam/test_timers_apart.py": ("side by side", "three and a map"),
    # The first elements go Beam's way.
    "unit/runners/spark/worker/fusion/test_assigning.py": (
        *("fixed-300", "sliding-300", "sessions-300", "windows of windows-300", "behind a DoFn of Beam's-300"),
        *("before a DoFn of Beam's-300", "two readers-300", "combined, the earliest-300"),
    ),
    "unit/runners/spark/worker/fusion/test_failures.py": (
        *("middle-300", "generator-300", "arguments-300", "combine-300", "key-300", "coder-300"),
    ),
    "unit/runners/spark/worker/test_task.py": (
        *("fixed", "sliding", "sessions", "latest", "count, discarding", "early and late, accumulating"),
    ),
    "unit/serde/test_contract.py": (
        *("json", "avro bare read as bare to dict", "avro single_object read as single_object to row"),
        *("avro confluent read as confluent to dataclass",),
    ),
    "unit/sql/runtime/joins/test_joins.py": ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN"),
    "unit/transforms/test_write.py": ("elements1", "elements2", "options1", "options2", "options3"),
}
"""By the file of sampled tests: parameters that other code handles. The gate runs the first case of each test with each
of them, too."""


def chosen(job: str, tests: Mapping[str, Collection[str]]) -> set[str]:
    """Returns the tests that a job of the gate has. `tests`: markers by pytest's ids, in pytest's order."""
    from tests.helpers.again import of_each_function  # it needs Hypothesis, which the gate itself does not

    kept = [test for test, markers in tests.items() if is_in(job, test, markers)]
    sampled = [test for test in kept if _begins(test, SAMPLED)]
    return set(kept).difference(sampled).union(of_each_function(sampled, has_last=True), _other_code(sampled))


def _other_code(sampled: Iterable[str]) -> Iterator[str]:
    """Yields the first case of each test with each parameter that other code handles."""
    found = set()
    for test in sampled:
        path, _, of = test.removeprefix("tests/").partition("[")
        for name in OTHER_CODE.get(path.partition("::")[0], ()):
            if _names(of.removesuffix("]"), name) and (path, name) not in found:
                found.add((path, name))
                yield test


def is_in(job: str, node_id: str, markers: Collection[str]) -> bool:
    """Whether a job of the gate has a test, or some of its parameters. `node_id`: pytest's."""
    if job not in _OF_THE_OTHER:
        return not _SERVERS.intersection(markers) and not _begins(node_id, LEFT_OUT)
    return is_gate(node_id, markers) and lane(node_id) == job


def _begins(node_id: str, tests: tuple[str, ...]) -> bool:
    return node_id.removeprefix("tests/").startswith(tests)


def is_gate(node_id: str, markers: Collection[str]) -> bool:
    """Whether a test on a real broker or runner is in the gate."""
    if not _SERVERS.intersection(markers) or {"cluster", "systems", "examples", "exhaustive"}.intersection(markers):
        return False
    return any(_has(part, node_id) for part in _parts())


def lane(node_id: str) -> str:
    """Returns the lane of a test of the gate."""
    path, _, parameters = node_id.partition("[")
    return "spark" if path.startswith(_OF_THE_OTHER["broker"]) or "spark" in parameters.lower() else "broker"


_OF_THE_OTHER: Final = {
    "broker": (
        *("tests/runners/pyspark/", "tests/runners/security/", "tests/runners/spark/", "tests/unit/runners/spark/"),
    ),
    "spark": ("tests/contract/", "tests/runners/flink/", "tests/runners/direct/", "tests/integration/cli/"),
}
"""Folders that have no tests of a lane."""


def files(lane: str) -> list[str]:
    """Returns the files and folders of the tests of a lane, in their order: pytest imports no others.

    Those of `unit` begin, because they need no server, so what they find is told in minutes.
    """
    found = {f"tests/{part.tests.partition('::')[0]}" for part in _parts()}
    of_lane = [each for each in found if not each.startswith(_OF_THE_OTHER[lane])]
    return sorted(of_lane, key=lambda each: (not each.startswith("tests/unit/"), each))


def needs_marker(node_id: str, markers: Collection[str]) -> bool:
    """Whether a test is where only tests with servers are, and has none of their markers."""
    with_servers = ("tests/integration/", "tests/runners/", "tests/examples/")
    return node_id.startswith(with_servers) and not _SERVERS.intersection(markers)


def nowhere(lane: str, tests: Collection[str]) -> list[str]:
    """Returns the tests of parts that are none of `tests`, which are all of the files of a lane, by pytest's ids."""
    of_lane = files(lane)
    return [
        part.tests
        for part in _parts()
        if f"tests/{part.tests.partition('::')[0]}" in of_lane and not any(_has(part, test) for test in tests)
    ]


def _parts() -> Iterator[Part]:
    return (part for parts in GATE.values() for part in parts)


def _has(part: Part, node_id: str) -> bool:
    path, _, of = node_id.removeprefix("tests/").partition("[")
    parameters = of.removesuffix("]")
    if not path.startswith(part.tests) or any(_is_of(path, parameters, each) for each in part.but):
        return False
    return not part.only or any(_names(parameters, each) for each in part.only)


def _is_of(path: str, parameters: str, name: str) -> bool:
    return path.endswith(f"::{name}") or _names(parameters, name)


def _names(parameters: str, name: str) -> bool:
    """Whether a test has this parameter, alone or among others, which hyphens join."""
    return f"-{name}-" in f"-{parameters}-"
