"""The work that the shell gives to the process of a statement."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from rmqio.sql.plan import Relation
from rmqio.sql.settings import Settings


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a process.

    Attributes:
      plan: of an INSERT INTO, which runs on the runner of the arguments; or of a SELECT, on the Direct runner.
      arguments: those of the command line; `start` and `stop` are the statement's.
      settings: what SET has set.
      descriptor: where the rows of a SELECT are written.
    """

    plan: Relation
    arguments: argparse.Namespace
    settings: Settings
    descriptor: int = -1
