"""Names of topics and groups are refused where a broker refuses them."""

from __future__ import annotations

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.errors import LocalError
from rmqio.sql.errors import SqlError
from rmqio.sql.scripts.script import Script
from rmqio.topics import validate_group, validate_topic

NAMES = ["a", "%RETRY%g", "%RETRY%" + "g" * 200, "%DLQ%" + "g" * 251, "t" * 127, "t" * 128, "g" * 120, "g" * 121,
         "a b", "a.b", "设备", "a\nb"]  # fmt: skip


def is_accepted(option: str, name: str) -> bool:
    more = "" if option == "topic" else ", 'topic' = 't'"
    try:
        Script().run(f"CREATE TABLE t (a INT) WITH ('{option}' = '{name}'{more})", "job.sql")
    except SqlError as error:
        # A message shortens a long name.
        return not (error.message.startswith(f"{option} is {name[:50]!r}"[:-1]) and " not a valid " in error.message)
    return True


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("option", ["topic", "dead-letter-topic", "consumerGroup", "producerGroup"])
def test_a_name_is_refused_if_a_broker_refuses_it(option: str, name: str) -> None:
    try:
        (validate_topic if "topic" in option else validate_group)(name)
    except LocalError:
        assert not is_accepted(option, name)
    else:
        assert is_accepted(option, name)
