"""`ReadFromKafka` and `WriteToKafka` over TLS with passwords: they come through, or a refusal says why."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest

pytest.importorskip("confluent_kafka", reason="Kafka needs the extra 'kafka'")

from rmqio.connect.kafka import client
from rmqio.start import StartFrom
from tests.helpers.pipelines.kafka import Listener, new_topic, read, write
from tests.helpers.servers.kafka import SECRET, Kafka
from tests.helpers.waiting import at_most

pytestmark = [pytest.mark.systems, pytest.mark.slow]

_ANOTHER = "another-secret-9c"
"""A password that the broker does not know."""


def test_messages_come_back_over_tls_with_a_password(broker: Kafka) -> None:
    topic, guarded = new_topic(broker), Listener(broker.guarded_servers)
    assert broker.guard is not None
    config = broker.guard.config()
    write(guarded, topic, [b"%d" % n for n in range(100)], config=config)
    start = StartFrom.timestamp(0)
    found = read(guarded, topic, config=config, start=start)
    assert sorted(int(each.value or b"") for each in found) == [*range(100)]
    assert sorted(found) == sorted(read(broker, topic)), "the other listener has the same"


@pytest.mark.parametrize(
    "does",
    [
        pytest.param(lambda guarded, topic, config: write(guarded, topic, [b"x"], config=config), id="write"),
        pytest.param(lambda guarded, topic, config: read(guarded, topic, config=config), id="read"),
    ],
)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sasl__password_file": "other"}, "SASL authentication error: .*Invalid username or password"),
        ({"sasl__mechanism": "SCRAM-SHA-256"}, "Unsupported SASL mechanism: broker's supported mechanisms: PLAIN"),
        ({"ssl__ca__location": "other"}, "certificate verify failed: .*verify that ssl.ca.location is correctly"),
        ({"ssl__certificate__location": None, "ssl__key__location": None}, "alert .*certificate"),
        ({"ssl__ca__location": "/no/such/ca.pem"}, "ssl.ca.location failed"),
        ({"sasl__username": None}, "sasl.username and sasl.password must be set"),
    ],
    ids=["password", "mechanism", "authority", "no certificate", "no file", "no user"],
)
def test_a_cluster_that_refuses_its_client_fails_at_once_and_says_why(
    broker: Kafka,
    does: Callable[..., object],
    change: dict[str, str | None],
    message: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Alone, the client would try for ever, and in the end say that the transport failed. No secret is shown."""
    monkeypatch.setattr(client, "_TIMEOUT_S", 3_600.0)  # of a cluster that is away: to wait for it would never end
    topic, guarded, guard = new_topic(broker), Listener(broker.guarded_servers), broker.guard
    assert guard is not None
    if change.get("ssl__ca__location") == "other":
        change = {"ssl__ca__location": guard.other_ca_file}
    if change.get("sasl__password_file") == "other":
        (tmp_path / "password").write_text(_ANOTHER)
        change = {"sasl__password_file": str(tmp_path / "password")}
    config = guard.config(**change)
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Exception, match=f"kafka://{guarded.servers}.*{message}") as caught:
        does(guarded, topic, config)
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert not re.search(f"{SECRET}|{_ANOTHER}", shown)


def test_a_copy_takes_the_options_of_tls_and_passwords_from_the_environment(broker: Kafka, tmp_path: Path) -> None:
    topic, guard = new_topic(broker), broker.guard
    assert guard is not None
    write(broker, topic, [b'{"n":%d}' % n for n in range(10)])
    config = guard.config(sasl__password_file=None) | {"sasl.password_env": "KAFKA_PASSWORD"}
    source = f"kafka://{broker.guarded_servers}/{topic}?{urlencode(config)}"
    command = [sys.executable, "-m", "rmqio", "copy", "--from", source, "--to", "-"]
    for password, status in ((SECRET, 0), (_ANOTHER, 1)):
        environment = os.environ | {"KAFKA_PASSWORD": password}
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False, timeout=at_most(120)
        )
        assert done.returncode == status, done.stderr
        assert password not in done.stdout + done.stderr
        found = sorted(json.loads(line)["n"] for line in done.stdout.splitlines() if line.startswith("{"))
        assert found == ([*range(10)] if status == 0 else [])
    assert "Invalid username or password" in done.stderr
