"""Changes to Beam in a worker: signatures that are remembered, and transforms that are replaced."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.transforms import core, userstate

from rmqio.runners.spark.beam import patches
from rmqio.runners.spark.beam.private import bundle_processor, common_urns


class Stateful(beam.DoFn):
    COUNT = userstate.CombiningValueStateSpec("count", sum)
    DUE = userstate.TimerSpec("due", userstate.TimeDomain.WATERMARK)

    def process(
        self, element: object, stamp: Any = beam.DoFn.TimestampParam, count: Any = beam.DoFn.StateParam(COUNT)
    ) -> None:
        count.add(1)

    @userstate.on_timer(DUE)
    def due(self, count: Any = beam.DoFn.StateParam(COUNT)) -> None:
        count.clear()


def methods_of(dofn: beam.DoFn) -> list[Any]:
    found = [getattr(dofn, name) for name in dir(dofn)]
    return [each for each in found if isinstance(each, types.MethodType)]


@pytest.mark.parametrize(
    "dofn",
    [beam.DoFn(), beam.Map(len).fn, beam.Filter(bool).fn, Stateful()],
    ids=["plain", "map", "filter", "stateful"],
)
def test_remembered_signatures_are_what_beam_finds(dofn: beam.DoFn) -> None:
    for method in methods_of(dofn):
        for _ in range(2):
            assert patches._remembered(method) == patches._inspect(method), method


def test_what_a_caller_does_to_a_remembered_signature_stays_with_the_caller() -> None:
    before = patches._inspect(beam.DoFn().process)
    names, defaults = patches._remembered(beam.DoFn().process)
    names.clear()
    defaults.append("more")
    assert patches._remembered(beam.DoFn().process) == before


def test_patches_may_be_applied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    factory = bundle_processor.BeamTransformFactory
    monkeypatch.setattr(factory, "_known_urns", dict(factory._known_urns))
    monkeypatch.setattr(core, "get_function_args_defaults", core.get_function_args_defaults)
    par_do = common_urns.primitives.PAR_DO.urn
    _, payload_type = factory._known_urns[par_do]
    for _ in range(2):
        patches.apply({par_do: len, "rmqio:test:new": repr})
        assert factory._known_urns[par_do] == (len, payload_type)
        assert factory._known_urns["rmqio:test:new"] == (repr, None)
        assert core.get_function_args_defaults is patches._remembered


def test_the_beam_of_a_driver_stays_as_it_is() -> None:
    program = (
        "import rmqio.runners.spark.runner, rmqio.runners.spark.worker.task\n"
        "from apache_beam.runners.worker import bundle_processor\n"
        "from apache_beam.transforms import core\n"
        "creators = [each for each, _ in bundle_processor.BeamTransformFactory._known_urns.values()]\n"
        "print({each.__module__.partition('.')[0] for each in [core.get_function_args_defaults, *creators]})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'apache_beam'}"


def test_methods_of_users_are_looked_at_anew() -> None:
    assert not patches._is_beams(cast(types.FunctionType, Stateful.process))
    assert patches._is_beams(beam.DoFn.process)
