"""Configuration files, ports, the HA class file and the arguments of the local broker: nothing here starts Java."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from rmqio.errors import LocalError
from rmqio.local import LocalBrokerError, LocalRocketMQ, __main__, install, processes
from rmqio.local.config import (
    broker_properties,
    logback_xml,
    name_server_properties,
    to_properties,
    uses_ha,
)


def properties(**extra: str | int | bool) -> dict[str, object]:
    return dict(
        broker_properties(name="b", name_server="127.0.0.1:1", port=20000, ha_port=20001, store=Path("/s"), extra=extra)
    )


def test_the_broker_stays_on_the_loopback_interface_and_serves_filters_and_timers() -> None:
    found = properties()
    assert found["bindAddress"] == found["brokerIP1"] == "127.0.0.1"
    assert found["enablePropertyFilter"] is True
    assert found["timerWheelEnable"] is True
    assert found["autoCreateTopicEnable"] is False


def test_the_broker_does_not_take_a_core_for_ten_seconds_after_its_start() -> None:
    """Its TransactionMetricsFlushService waits for its first interval in a busy loop."""
    interval = properties()["transactionMetricFlushInterval"]
    assert isinstance(interval, int)
    assert interval < 1_000


def test_properties_of_the_user_win() -> None:
    found = properties(autoCreateTopicEnable=True, mappedFileSizeCommitLog=1048576)
    assert found["autoCreateTopicEnable"] is True
    assert found["mappedFileSizeCommitLog"] == 1048576


@pytest.mark.parametrize("key", ["listenPort", "namesrvAddr", "storePathRootDir", "brokerName"])
def test_properties_that_we_rely_on_are_refused_with_what_to_use_instead(key: str) -> None:
    with pytest.raises(LocalError, match=rf"broker_config cannot set '{key}': use "):
        properties(**{key: "x"})
    if key != "brokerName":
        with pytest.raises(LocalError, match="name_server_config"):
            name_server_properties(port=1, home=Path("/n"), extra={key: "x"})


def test_a_properties_file_escapes_what_java_would_read_otherwise() -> None:
    assert to_properties({"a": True, "b": 1, "c": "C:\\x y", "d": '{"k":"#!="}', "e": "ü\n😀"}) == (
        'a=true\nb=1\nc=C\\:\\\\x\\ y\nd={"k"\\:"\\#\\!\\="}\ne=\\u00fc\\n\\ud83d\\ude00\n'
    )


def test_the_logging_configuration_is_xml_for_any_path() -> None:
    root = ElementTree.fromstring(logback_xml(Path('/a & <b> "c"/log.txt')))
    assert root.findtext("appender/file") == '/a & <b> "c"/log.txt'


@pytest.mark.parametrize(
    ("extra", "wanted"),
    [({}, False), ({"brokerRole": "SYNC_MASTER"}, False), ({"brokerRole": "SLAVE"}, True), ({"haListenPort": 1}, True)],
)
def test_the_ha_port_is_opened_only_for_who_asks_for_replication(extra: dict[str, str | int], wanted: bool) -> None:
    assert uses_ha(extra) is wanted


@pytest.mark.parametrize("has_port", [False, True])
def test_the_ha_service_is_a_java_8_class_named_by_its_service_file(tmp_path: Path, has_port: bool) -> None:
    install.write_ha_service(tmp_path, has_port=has_port)
    named = (tmp_path / "META-INF/service/org.apache.rocketmq.store.ha.HAService").read_text().strip()
    content = (tmp_path / f"{named.replace('.', '/')}.class").read_bytes()
    assert content[:8] == bytes.fromhex("cafebabe00000034")
    assert b"org/apache/rocketmq/store/ha/DefaultHAService" in content


def test_a_free_port_is_free_and_outside_the_range_of_outgoing_connections() -> None:
    port = processes.free_port(below=(2,))
    assert 10_000 <= port < 32_000
    for number in (port, port - 2):
        with socket.create_server((processes.LOOPBACK, number)):
            assert not processes.is_free(number)


def test_no_free_port_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "is_free", lambda port: False)
    with pytest.raises(LocalBrokerError, match="no free port"):
        processes.free_port()


@pytest.mark.parametrize("argument", ["name_server_port", "broker_port"])
@pytest.mark.parametrize("distance", [0, 2])
def test_a_port_in_use_is_an_error_before_anything_starts(argument: str, distance: int) -> None:
    with socket.create_server((processes.LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        if argument == "broker_port":
            port += distance
        rocketmq = LocalRocketMQ(**{argument: port})
        with pytest.raises(LocalBrokerError, match=r"port \d+ of 127\.0\.0\.1, wanted for the .* is in use"):
            rocketmq.start()


def test_a_number_that_is_no_port_is_an_error() -> None:
    with pytest.raises(LocalBrokerError, match="between 1 and 65535"):
        LocalRocketMQ(name_server_port=70_000).start()


def test_a_full_disk_is_an_error_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("Usage", (), {"used": 91, "free": 9}))
    with pytest.raises(LocalBrokerError, match=r"91% full.*data_dir="):
        LocalRocketMQ(data_dir=tmp_path).start()


def test_a_data_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalBrokerError, match=r"cannot create the data folder .*file"):
        LocalRocketMQ(data_dir=tmp_path / "file" / "data").start()


def test_a_temporary_folder_does_not_outlive_a_failed_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no java here"))
    with pytest.raises(LocalBrokerError, match="JAVA_HOME"):
        LocalRocketMQ().start()
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_started_says_so() -> None:
    rocketmq = LocalRocketMQ(name="b1")
    assert repr(rocketmq) == "<LocalRocketMQ b1, not started>"
    for use in (lambda: rocketmq.name_server, rocketmq.kill, rocketmq.restart, lambda: rocketmq.create_topic("t")):
        with pytest.raises(LocalBrokerError, match="not started"):
            use()
    rocketmq.stop()


@pytest.mark.parametrize("arguments", [{"name": "a b"}, {"name": ""}, {"broker_heap_mb": 1}])
def test_bad_arguments_are_refused_at_once(arguments: dict[str, object]) -> None:
    with pytest.raises(LocalError, match=next(iter(arguments))):
        LocalRocketMQ(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topic", "a:0"], "NAME or NAME:QUEUES"),
        (["--topic", ":3"], "NAME or NAME:QUEUES"),
        (["--topic", "a:b"], "NAME or NAME:QUEUES"),
        (["--topic", "a b:2"], "topic name 'a b' is illegal"),
        (["--broker-config", "x"], "KEY=VALUE"),
        (["--port", "x"], "is not a whole number"),
        (["--nonsense"], "unknown argument '--nonsense'"),
    ],
)
def test_the_command_refuses_bad_arguments(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        __main__.main(arguments)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_the_commands_arguments_reach_the_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: dict[str, object] = {}

    class Fake:
        def __init__(self, **arguments: object) -> None:
            seen.update(arguments)

        def __enter__(self) -> None:
            raise LocalBrokerError("no further")

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(__main__, "LocalRocketMQ", Fake)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    options = ["--data-dir", "/d", "--heap", "512", "--port", "1", "--broker-port", "4", "--broker-config", "a=b=c"]
    assert __main__.main([*options, "--topic", "t:2"]) == 1
    assert seen["data_dir"] == "/d"
    assert (seen["broker_heap_mb"], seen["name_server_port"], seen["broker_port"]) == (512, 1, 4)
    assert seen["broker_config"] == {"a": "b=c"}
    assert capsys.readouterr() == ("", "rmqio.local: no further\n")


def test_the_pytest_plugin_and_the_package_load_next_to_nothing() -> None:
    program = "import sys, rmqio.local.pytest_plugin; print(*[m for m in sys.modules if m.startswith('rmqio.')])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(result.stdout.split()) == {"rmqio.loading", "rmqio.local", "rmqio.local.pytest_plugin"}
