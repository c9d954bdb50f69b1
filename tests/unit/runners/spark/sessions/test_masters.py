"""Masters of Spark that are local, and those that are not."""

from __future__ import annotations

import pytest

from rmqio.runners.spark.sessions.session import is_local, is_on_this_machine


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[*,4]", "local[ 2 , 3 ]"])
def test_tasks_of_a_local_master_run_in_the_driver(master: str) -> None:
    assert is_local(master)
    assert is_on_this_machine(master)


def test_a_local_cluster_has_executors_that_can_be_lost() -> None:
    assert not is_local("local-cluster[2,1,1024]")
    assert is_on_this_machine("local-cluster[2,1,1024]")


@pytest.mark.parametrize("master", ["spark://localhost:7077", "yarn", "k8s://https://local:443", "localhost", "", None])
def test_other_masters_are_elsewhere(master: str | None) -> None:
    assert not is_local(master)
    assert not is_on_this_machine(master)
