"""Changes to Beam in a worker: signatures that are read sooner, and transforms that are replaced."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from apache_beam.transforms import core

from rmqio.runners.beam.speedups import arguments_and_defaults
from rmqio.runners.spark.beam import patches
from rmqio.runners.spark.beam.private import BeamTransformFactory, common_urns


def test_patches_may_be_applied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    factory = BeamTransformFactory
    monkeypatch.setattr(factory, "_known_urns", dict(factory._known_urns))
    monkeypatch.setattr(core, "get_function_args_defaults", core.get_function_args_defaults)
    par_do = common_urns.primitives.PAR_DO.urn
    _, payload_type = factory._known_urns[par_do]
    for _ in range(2):
        patches.apply({par_do: len, "rmqio:test:new": repr})
        assert factory._known_urns[par_do] == (len, payload_type)
        assert factory._known_urns["rmqio:test:new"] == (repr, None)
        assert core.get_function_args_defaults is arguments_and_defaults


def test_imports_change_nothing_in_beam() -> None:
    program = (
        "import rmqio.runners.spark.runner, rmqio.runners.spark.worker.task\n"
        "from apache_beam.runners.worker import bundle_processor\n"
        "from apache_beam.transforms import core\n"
        "creators = [each for each, _ in bundle_processor.BeamTransformFactory._known_urns.values()]\n"
        "print({each.__module__.partition('.')[0] for each in [core.get_function_args_defaults, *creators]})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'apache_beam'}"
