"""Options whose views are made once have the values that Beam's have."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions, StandardOptions, TypeOptions

from rmqio.runners import options
from rmqio.runners.beam.speedups import ViewedOptions

FLAGS = ["--experiments=a", "--streaming"]


class Mine(PipelineOptions):
    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_argument("--of_a_test", default="none")


@pytest.fixture(params=[PipelineOptions, ViewedOptions])
def made(request: pytest.FixtureRequest) -> PipelineOptions:
    kind: type[PipelineOptions] = request.param
    return kind([*FLAGS], runner="DirectRunner")


def test_views_have_one_set_of_values(made: PipelineOptions) -> None:
    made.view_as(DebugOptions).experiments.append("b")
    made.view_as(StandardOptions).streaming = False
    assert made.view_as(DebugOptions).experiments == ["a", "b"]
    assert not made.view_as(DebugOptions).view_as(StandardOptions).streaming
    assert made.get_all_options(drop_default=True) == {"experiments": ["a", "b"], "runner": "DirectRunner"}
    made.view_as(Mine).of_a_test = "other"
    assert made.get_all_options()["of_a_test"] == "other"
    with pytest.raises(AttributeError):
        made.view_as(Mine).unknown = 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["copy", "pickle"])
def test_a_copy_has_values_of_its_own(made: PipelineOptions, copied: Any) -> None:
    made.view_as(DebugOptions).experiments.append("b")
    other = copied(made)
    assert "_views" not in vars(other)
    assert type(other) is type(made)
    other.view_as(DebugOptions).experiments.append("c")
    assert made.view_as(DebugOptions).experiments == ["a", "b"]
    assert other.view_as(DebugOptions).experiments == ["a", "b", "c"]


def test_a_view_is_made_once() -> None:
    made = options(FLAGS)
    assert made.view_as(TypeOptions) is made.view_as(TypeOptions)
    pipeline = beam.Pipeline(options=made)
    assert pipeline.options.view_as(TypeOptions) is pipeline.options.view_as(TypeOptions)


def test_flags_that_are_added_later_are_seen() -> None:
    flags: list[str] = []
    made = ViewedOptions(flags)
    assert made.view_as(Mine).of_a_test == "none"
    flags.append("--type_check_additional=all")
    assert made.view_as(TypeOptions).type_check_additional == "all"
