"""Beam's own suite for its FlinkRunner, run through our runner; `make test-all`."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability import flink_runner_test
from apache_beam.runners.portability.fn_api_runner import fn_runner_test

from rmqio.runners import options
from rmqio.runners.flink.jobserver import SERVERS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,
    pytest.mark.timeout(120),
    # Beam's worker in this process may still be reading after its job is over. Its thread then ends with this error.
    pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning"),
]

NO_EXPANSION = "needs the expansion service of a Java job server, which ours has not: rmqio has no Java transforms"


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    yield
    SERVERS.stop_all()


class TestOnFlink(flink_runner_test.FlinkRunnerTest):
    """Adapts Beam's suite, which needs the path of a jar. Runs tests that it skips for reasons that are void here."""

    @pytest.fixture(autouse=True)
    def parse_options(self) -> None:
        """Replaces the reading of a jar's path from the command line: our runner finds its jar itself."""

    def create_options(self) -> PipelineOptions:
        # Some tests have an unbounded PCollection that ends. Flink only waits for it if it must. After the sources have
        # ended, there are no more checkpoints, and nothing is finalized.
        idle_ms = 30_000 if self.enable_commit else 1_000
        flags = ["--checkpointing_interval=1000"] if self.enable_commit else []
        return options(
            ["--runner=FlinkRunner", "--parallelism=2", f"--shutdown_sources_after_idle_ms={idle_ms}", *flags]
        )

    def create_pipeline(self, is_drain: bool = False) -> beam.Pipeline:
        return beam.Pipeline(options=self.create_options())

    def test_register_finalizations(self) -> None:
        self.enable_commit = True
        fn_runner_test.FnApiRunnerTest.test_register_finalizations(self)

    def test_callbacks_with_exception(self) -> None:
        self.enable_commit = True
        fn_runner_test.FnApiRunnerTest.test_callbacks_with_exception(self)

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
