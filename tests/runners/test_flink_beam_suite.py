"""Beam's own suite for its FlinkRunner, through ours; `make test-exhaustive`."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability import flink_runner_test
from apache_beam.runners.portability.fn_api_runner import fn_runner_test

from rmqio.runners import options
from rmqio.runners.flink.servers import SERVERS

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

NO_EXPANSION = "needs the expansion service of a Java job server, which ours has not: rmqio has no Java transforms"


class TestOnFlink(flink_runner_test.FlinkRunnerTest):
    """Beam's needs a jar that is given to it; what it skips for a reason that does not hold here is run."""

    @pytest.fixture(autouse=True)
    def parse_options(self) -> None:
        """Of the command line, where there is a jar of a job server: ours is found."""

    @pytest.fixture(scope="class", autouse=True)
    def servers(self) -> Iterator[None]:
        yield
        SERVERS.stop_all()

    def create_options(self) -> PipelineOptions:
        flags = ["--runner=FlinkRunner", "--parallelism=2"]
        if self.enable_commit:
            flags += ["--streaming", "--checkpointing_interval=3000"]
        return options(flags)

    def create_pipeline(self, is_drain: bool = False) -> beam.Pipeline:
        return beam.Pipeline(options=self.create_options())

    def test_register_finalizations(self) -> None:
        fn_runner_test.FnApiRunnerTest.test_register_finalizations(self)

    def test_callbacks_with_exception(self) -> None:
        fn_runner_test.FnApiRunnerTest.test_callbacks_with_exception(self)

    def test_flatten_and_gbk(self) -> None:
        fn_runner_test.FnApiRunnerTest.test_flatten_and_gbk(self)

    def test_custom_window_type(self) -> None:
        fn_runner_test.FnApiRunnerTest.test_custom_window_type(self)

    def test_custom_merging_window(self) -> None:
        fn_runner_test.FnApiRunnerTest.test_custom_merging_window(self)

    def test_sdf_with_watermark_tracking(self) -> None:
        fn_runner_test.FnApiRunnerTest.test_sdf_with_watermark_tracking(self)

    @pytest.mark.skip(reason=NO_EXPANSION)
    def test_external_transform(self) -> None: ...

    @pytest.mark.skip(reason=NO_EXPANSION)
    def test_expand_kafka_read(self) -> None: ...

    @pytest.mark.skip(reason=NO_EXPANSION)
    def test_expand_kafka_write(self) -> None: ...

    @pytest.mark.skip(reason=NO_EXPANSION)
    def test_sql(self) -> None: ...
