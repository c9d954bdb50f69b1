"""The work that the shell gives to the process of a statement."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

from rmqio.sql.catalog.settings import Settings
from rmqio.sql.planning.plan import Relation, Sink
from rmqio.sql.scripts.script import Texts


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a process.

    Attributes:
      arguments: those of the command line; `start` and `stop` are the statement's.
      settings: what SET has set.
      sinks: of INSERT INTO, which run as one job on the runner of the arguments.
      texts: of the session, in which errors of the plan have their places.
      query: of SELECT, which runs on the Direct runner; None: there are sinks.
      descriptor: where the rows of a SELECT are written.
    """

    arguments: argparse.Namespace
    settings: Settings
    sinks: tuple[Sink, ...] = ()
    texts: Texts = field(default_factory=Texts)
    query: Relation | None = None
    descriptor: int = -1
