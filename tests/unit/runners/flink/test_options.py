"""Options of a job on Flink where its user says nothing, and the messages that its user gets."""

from __future__ import annotations

import os
import re
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions, StandardOptions
from apache_beam.transforms.periodicsequence import PeriodicImpulse

from rmqio import ReadFromRocketMQ, StopAt
from rmqio.errors import LocalError
from rmqio.runners.flink import runner
from rmqio.runners.flink.jobserver_command import STREAM_RESTARTS
from rmqio.runners.flink.options import FlinkOptions, Job, dangers, flink_conf, job_of, set_defaults
from rmqio.runners.flink.rest import FlinkJob
from rmqio.runners.flink.runner import _wanted, storage_of
from rmqio.runners.options import JOB_SERVER_OPTIONS

BATCH, BOUNDED, ENDLESS = Job(False, False), Job(True, False), Job(True, True)


def settled(job: Job, *flags: str, storage: str | None = None) -> PipelineOptions:
    options = PipelineOptions([*flags])
    set_defaults(options, job, storage)
    return options


def test_a_stream_has_checkpoints_and_rocksdb() -> None:
    options = settled(ENDLESS, storage="file:///there")
    assert options.view_as(StandardOptions).streaming
    found = options.view_as(FlinkOptions)
    assert found.checkpointing_interval == 10_000
    assert found.checkpointing_mode == "EXACTLY_ONCE"
    assert found.state_backend == "rocksdb"
    assert found.state_backend_storage_path == "file:///there"
    assert found.externalized_checkpoints_enabled
    assert found.retain_externalized_checkpoints_on_cancellation
    assert found.finish_bundle_before_checkpointing
    assert found.shutdown_sources_after_idle_ms is None, "its read would be run to its end at once, without checkpoints"
    assert dangers(options, ENDLESS) == []


def test_what_the_user_says_counts() -> None:
    flags = ["--checkpointing_interval=500", "--checkpointing_mode=AT_LEAST_ONCE", "--state_backend=hashmap"]
    options = settled(ENDLESS, *flags, "--state_backend_storage_path=s3://b/c", storage="file:///there")
    found = options.view_as(FlinkOptions)
    assert (found.checkpointing_interval, found.checkpointing_mode) == (500, "AT_LEAST_ONCE")
    assert (found.state_backend, found.state_backend_storage_path) == ("hashmap", "s3://b/c")


def test_without_checkpoints_there_is_no_state_backend_which_would_ask_where_they_go() -> None:
    assert settled(ENDLESS, "--checkpointing_interval=-1").view_as(FlinkOptions).state_backend is None


def test_where_nobody_says_where_checkpoints_go_the_clusters_state_backend_is_taken() -> None:
    found = settled(ENDLESS).view_as(FlinkOptions)
    assert (found.state_backend, found.state_backend_storage_path) == (None, None)
    assert found.checkpointing_interval == 10_000


def test_a_stream_that_ends_lets_its_sources_go() -> None:
    assert settled(BOUNDED).view_as(FlinkOptions).shutdown_sources_after_idle_ms == 1_000


def test_a_batch_job_is_left_alone() -> None:
    found = settled(BATCH).view_as(FlinkOptions)
    assert found.checkpointing_interval is None
    assert found.state_backend is None
    with pytest.raises(LocalError, match=r"--savepoint_path.*batch job"):
        settled(BATCH, "--savepoint_path=file:///there")


def test_a_pipeline_without_end_is_a_stream_whatever_the_options_say() -> None:
    pipeline = beam.Pipeline()
    _ = pipeline | PeriodicImpulse()
    assert job_of(pipeline.to_runner_api(), PipelineOptions([])) == ENDLESS
    pipeline = beam.Pipeline()
    _ = pipeline | beam.Create([1])
    assert job_of(pipeline.to_runner_api(), PipelineOptions([])) == BATCH
    assert job_of(pipeline.to_runner_api(), PipelineOptions(["--streaming"])) == BOUNDED


@pytest.mark.parametrize(("group", "job"), [(None, BATCH), ("billing", BOUNDED)])
def test_a_read_that_commits_offsets_is_a_stream_though_it_ends(group: str | None, job: Job) -> None:
    pipeline = beam.Pipeline()
    _ = pipeline | ReadFromRocketMQ("a", name_server="localhost:9", consumer_group=group, stop=StopAt.latest())
    assert job_of(pipeline.to_runner_api(), PipelineOptions([])) == job


@pytest.mark.parametrize(
    ("job", "flags", "told"),
    [
        (ENDLESS, ["--checkpointing_interval=-1"], "no group offset is committed"),
        (ENDLESS, ["--checkpointing_mode=AT_LEAST_ONCE"], "counted elements twice"),
        (ENDLESS, ["--allow_non_restored_state"], "state that fits no step"),
        (ENDLESS, ["--flink_master=flink:8081", "--environment_type=LOOPBACK"], "in this process; when it ends"),
        (ENDLESS, ["--flink_master=flink:8081", "--state_backend_storage_path=file:///a"], "must have that folder"),
        (BATCH, ["--checkpoint_dir=/a"], "no effect: this is a batch job"),
    ],
)
def test_what_is_not_safe_is_said(job: Job, flags: list[str], told: str) -> None:
    (found,) = dangers(settled(job, *flags), job)
    assert told in found


@pytest.mark.parametrize("master", ["127.0.0.1:8081", "http://localhost:8081", "[::1]:8081"])
def test_a_cluster_on_this_machine_sees_its_folders(master: str) -> None:
    options = settled(ENDLESS, "--state_backend_storage_path=file:///a")
    options.view_as(FlinkRunnerOptions).flink_master = master
    assert dangers(options, ENDLESS) == []


@pytest.mark.parametrize(
    ("job", "flags", "restarts"),
    [
        (ENDLESS, [], dict(STREAM_RESTARTS)),
        (ENDLESS, ["--checkpointing_interval=-1"], {}),
        (BOUNDED, [], {}),
        (BATCH, [], {}),
        (ENDLESS, ["--flink_conf=restart-strategy.type=none"], {"restart-strategy.type": "none"}),
        (
            ENDLESS,
            ["--flink_conf=restart-strategy.fixed-delay.attempts=7"],
            {"restart-strategy.fixed-delay.attempts": "7"},
        ),
        (ENDLESS, ["--flink_master=flink:8081"], {}),
    ],
)
def test_only_what_goes_on_from_a_checkpoint_is_restarted_any_number_of_times(
    job: Job, flags: list[str], restarts: dict[str, object]
) -> None:
    """Other jobs on the embedded Flink have its three attempts; a cluster is configured by its operators."""
    conf = _wanted(settled(job, *flags), job).flink_conf
    assert {name: value for name, value in conf if name.startswith("restart-strategy")} == restarts


def test_settings_of_flink() -> None:
    options = PipelineOptions(["--flink_conf=a.b=1", "--flink_conf=c=d=e"])
    assert flink_conf(options) == {"a.b": "1", "c": "d=e"}
    with pytest.raises(LocalError, match="NAME=VALUE"):
        flink_conf(PipelineOptions(["--flink_conf=a.b"]))


def test_a_folder_becomes_a_url_and_is_made(tmp_path: Path) -> None:
    url = runner.url_of(str(tmp_path / "with space"))
    assert url == (tmp_path / "with space").as_uri()
    assert (tmp_path / "with space").is_dir()
    assert runner.url_of("s3://bucket/a") == "s3://bucket/a"
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalError, match=r"--checkpoint_dir=.*file"):
        runner.url_of(str(tmp_path / "file" / "below"))


def test_the_newest_complete_checkpoint_of_any_job(tmp_path: Path) -> None:
    url = runner.url_of(str(tmp_path / "with space"))
    assert runner.newest(url) is None
    for number, name in enumerate(["a/chk-9", "b/chk-1", "b/chk-2", "b/shared"]):
        folder = tmp_path / "with space" / name
        folder.mkdir(parents=True)
        if name != "b/chk-2":  # is being made
            (folder / "_metadata").write_text("")
            os.utime(folder / "_metadata", (number, number))
    assert runner.newest(url) == (tmp_path / "with space/b/chk-1").as_uri()
    savepoint = tmp_path / "with space/savepoint-12ab34-cd"  # with which the job was stopped; Flink then drops chk-*
    savepoint.mkdir()
    (savepoint / "_metadata").write_text("")
    assert runner.newest(url) == savepoint.as_uri()


def made(folder: Path, seconds: int) -> str:
    folder.mkdir(parents=True)
    (folder / "_metadata").write_text("")
    os.utime(folder / "_metadata", (seconds, seconds))
    return folder.as_uri()


def test_a_savepoint_that_is_older_than_the_last_checkpoint_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest = made(tmp_path / "checkpoints/job/chk-7", 2)
    for seconds in (1, 3):
        savepoint = made(tmp_path / f"savepoint-{seconds}", seconds)
        options = PipelineOptions([f"--checkpoint_dir={tmp_path / 'checkpoints'}", f"--savepoint_path={savepoint}"])
        assert storage_of(options, ENDLESS, []) == ((tmp_path / "checkpoints").as_uri(), None)
        assert options.view_as(FlinkOptions).savepoint_path == savepoint
    (told,) = caplog.messages
    assert "savepoint-1 is older than" in told
    assert newest in told


def test_the_checkpoints_of_a_job_that_still_runs_are_its_own(tmp_path: Path) -> None:
    made(tmp_path / "checkpoints/b3c1/chk-7", 1)
    flags = [f"--checkpoint_dir={tmp_path / 'checkpoints'}", "--flink_master=localhost:8081"]
    for state in ("CANCELED", "RUNNING"):
        others = [FlinkJob("b3c1", "orders", state, 0), FlinkJob("a", "another", "RUNNING", 0)]
        if state == "CANCELED":
            storage_of(PipelineOptions(flags), ENDLESS, others)
        else:
            with pytest.raises(LocalError, match=r"the job orders \(b3c1\).* still runs on localhost:8081"):
                storage_of(PipelineOptions(flags), ENDLESS, others)


def test_a_file_system_that_beam_does_not_know_is_refused() -> None:
    with pytest.raises(LocalError, match="--savepoint_path"):
        runner.newest("oss2://bucket/a")


def test_each_flag_that_the_page_names_is_an_option_of_ours_or_of_the_job_server() -> None:
    """Such as those that shorten the first checkpoint in a backlog."""
    page = (Path(__file__).parents[4] / "docs/flink.md").read_text()
    flags = set(re.findall(r"--([a-z]\w+_\w+)", page)) - {"flink_cluster"}
    assert "unaligned_checkpoint_enabled" in flags
    assert flags - JOB_SERVER_OPTIONS - PipelineOptions([]).get_all_options().keys() == set()
