"""Kinds of Spark masters: where a Spark runs."""

from __future__ import annotations


def is_local(master: str | None) -> bool:
    """Returns whether the tasks run in the driver's process: no machine can be lost without the driver."""
    return master is not None and (master == "local" or master.startswith("local["))


def is_on_this_machine(master: str | None) -> bool:
    """Returns whether nobody on another machine needs to reach it: `local`, or `local-cluster[...]` of processes."""
    return is_local(master) or (master is not None and master.startswith("local-cluster["))
