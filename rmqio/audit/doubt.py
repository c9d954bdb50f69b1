"""Whether messages that look lost may have arrived, by an id with a label that is not known here.

The table, which is in docs/operate/audit.md, too:

| what is known | messages that look lost are |
|---|---|
| the id has no labels: `--by` is none or not place | lost |
| no message of the second topic is unexplained | lost |
| `--steps` gives the labels, and something has arrived by each of them | lost |
| nothing has arrived by a label that is given, or it was not tried since the topics do not fit into memory | in doubt |
| no labels are given: what is behind the last `Audit`, or beside it, can add some to those of its sketches | in doubt |

A message of the second topic is explained if it is of a message of the first one, also of one that was not read: it was
sent before the range or after it, or retention has deleted it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import numpy as np

from rmqio.audit.identity import Identity, hash_of
from rmqio.model import MessageQueue

_MOST_TRIED: Final = 400_000
"""Places that are tried as the origin of unexplained messages, since each takes 3 us for each label."""


def outside(
    ids: Collection[int], among: Collection[Identity], ranges: Mapping[MessageQueue, tuple[range, range]]
) -> set[int]:
    """Return which of the hashes are of messages of the first topic that were not read.

    Args:
      ranges: by queue: the offsets before those that were read, and behind them. The nearest are tried.
    """
    most = _MOST_TRIED // (2 * max(1, len(ranges)))
    found: set[int] = set()
    wanted = np.array([*ids], np.uint64)
    for queue, (before, behind) in ranges.items():
        for identity in among:
            if identity.of_copy is None:
                continue
            texts = [identity.of_copy(queue, offset, 0) for each in (before[-most:], behind[:most]) for offset in each]
            hashes = np.frombuffer(b"".join(map(hash_of, texts)), ">u8").astype(np.uint64)
            found.update(hashes[np.isin(hashes, wanted)].tolist())
    return found


def why_in_doubt(
    given: Collection[str], counted: Collection[str], tried: Collection[str], arrived: Collection[str]
) -> str:
    """Return why the labels do not decide; empty: they do.

    Args:
      given: the labels that ids of the second topic have, as --steps says; "": none.
      counted: those that the sketches of the last Audit have.
      tried: the labels with which messages were looked for.
      arrived: those by which some were found.
    """
    if untried := {*given, *counted}.difference(tried):
        return (
            f"messages that do not fit into --memory_mb are looked for with one label, here {_texts(tried)}, and not "
            f"with {_texts(untried)}; give more memory"
        )
    if not given and counted:
        return (
            f"the last Audit has the labels {_texts(counted)}, but MapRecords and SQL behind it, or beside it, can add "
            "others; give all labels as --steps (--steps '' if there are none)"
        )
    if not given:
        return (
            "these ids contain the labels of MapRecords and of SQL, which are not known here; give them as --steps "
            "(--steps '' if there are none), or give --audit_topic"
        )
    if missing := [label for label in given if label not in arrived]:
        return f"nothing has arrived by the label {_texts(missing)} of --steps; correct the labels with --steps"
    return ""


def _texts(labels: Collection[str]) -> str:
    return " and ".join(map(repr, sorted(labels)))
