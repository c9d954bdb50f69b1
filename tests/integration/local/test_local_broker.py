"""`LocalRocketMQ` and `python -m rmqio.local` with the real broker."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqio.local import LocalBrokerError, LocalRocketMQ, broker, processes, ready
from rmqio.local.config import broker_properties, to_properties
from rmqio.local.fetch import cache_dir
from tests.helpers.waiting import at_most, runs, until

pytestmark = pytest.mark.broker

COMMAND = ["-m", "rmqio.local"]
GET_BROKER_CONFIG = 26
PARENT = """
import time
from rmqio.local import LocalRocketMQ
rocketmq = LocalRocketMQ()
rocketmq.start()
print(rocketmq.pid("broker"), rocketmq.pid("name_server"), rocketmq.data_dir, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalRocketMQ]:
    """One broker for the tests that leave it running as they found it."""
    with LocalRocketMQ(name="shared", broker_heap_mb=256) as rocketmq:
        yield rocketmq


@contextlib.contextmanager
def running(arguments: Sequence[str | os.PathLike[str]], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A Python program with its outputs as pipes; killed at the end if it still runs, so that no failure hangs."""
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def is_gone(pid: int) -> bool:
    """Gone, or a zombie that the machine's init has not reaped."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return not state or state.startswith("Z")


def listening(pid: int) -> set[tuple[str, int]]:
    """(address, port) of the process's listening TCP sockets, from /proc."""
    links = (os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink())
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, port = fields[1].split(":")
                # The last word, in the machine's order, is the IPv4 address, also of one that is mapped into IPv6.
                found.add((socket.inet_ntoa(struct.pack("=I", int(address[-8:], 16))), int(port, 16)))
    return found


def queues(rocketmq: LocalRocketMQ, topic: str) -> int:
    found = ready.route(rocketmq.name_server, topic) or {"queueDatas": []}
    return sum(int(entry["writeQueueNums"]) for entry in found["queueDatas"])


def test_both_answer_once_started_and_nothing_is_left_once_stopped() -> None:
    with LocalRocketMQ() as rocketmq:
        addresses, data_dir = (rocketmq.name_server, rocketmq.broker), rocketmq.data_dir
        pids = (rocketmq.pid("name_server"), rocketmq.pid("broker"))
        assert all(address.startswith("127.0.0.1:") and is_open(address) for address in addresses)
        cluster = ready.call(rocketmq.name_server, ready.GET_BROKER_CLUSTER_INFO).json()
        assert cluster["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {"0": rocketmq.broker}
        with pytest.raises(LocalBrokerError, match="already started"):
            rocketmq.start()
    assert not any(is_open(address) for address in addresses)
    assert not data_dir.exists()
    assert all(pid is not None and is_gone(pid) for pid in pids)
    rocketmq.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_only_the_loopback_interface_is_listened_on_and_no_ha_port_is_open(shared: LocalRocketMQ) -> None:
    name_server, main = (int(address.rpartition(":")[2]) for address in (shared.name_server, shared.broker))
    pids = {part: shared.pid(part) for part in ("name_server", "broker")}
    assert listening(pids["name_server"] or 0) == {("127.0.0.1", name_server)}
    assert listening(pids["broker"] or 0) == {("127.0.0.1", main), ("127.0.0.1", main - 2)}


def test_the_broker_knows_each_property_of_ours(shared: LocalRocketMQ) -> None:
    """It ignores a property that it does not know."""
    ours = to_properties(
        broker_properties(
            name=shared.name,
            name_server=shared.name_server,
            port=int(shared.broker.rpartition(":")[2]),
            ha_port=0,  # a free one, which nobody opens
            store=shared.data_dir / "store",
            extra={},
        )
    )
    answer = ready.call(shared.broker, GET_BROKER_CONFIG)
    found = set(answer.body.decode().splitlines())
    unknown = {line.replace("\\", "") for line in ours.splitlines()} - found
    assert {line.partition("=")[0] for line in unknown} == {"haListenPort"}


def test_a_topic_is_in_the_route_when_create_topic_returns(shared: LocalRocketMQ) -> None:
    shared.create_topic("made", queues=3)
    assert queues(shared, "made") == 3
    shared.create_topic("made", queues=5)
    assert queues(shared, "made") == 5
    shared.create_topic("delayed", attributes={"message.type": "DELAY"})
    shared.delete_topic("made")
    assert ready.route(shared.name_server, "made") is None
    shared.delete_topic("never-made")


def test_a_topic_that_the_broker_refuses_is_an_error_with_its_words(shared: LocalRocketMQ) -> None:
    with pytest.raises(LocalBrokerError, match=r"create topic 'a b': .* refuses with code \d+: .*illegal"):
        shared.create_topic("a b")


def test_a_paused_broker_hangs_and_answers_again_when_resumed(shared: LocalRocketMQ) -> None:
    shared.pause()
    with pytest.raises(TimeoutError):
        ready.call(shared.broker, ready.GET_TOPIC_CONFIG, {"topic": "x"}, timeout_s=0.5)
    shared.resume()
    assert ready.call(shared.broker, ready.GET_TOPIC_CONFIG, {"topic": "x"}).code == ready.TOPIC_NOT_EXIST
    assert shared.pid() is not None


def test_a_killed_broker_is_gone_until_restarted_with_its_topics_on_the_same_ports(shared: LocalRocketMQ) -> None:
    shared.create_topic("kept", queues=2)
    addresses, pid = (shared.name_server, shared.broker), shared.pid()
    shared.kill()
    assert shared.pid() is None
    assert not is_open(shared.broker)
    with pytest.raises(LocalBrokerError, match="not running"):
        shared.pause()
    with pytest.raises(LocalBrokerError, match="does not answer"):
        shared.create_topic("too-late")
    shared.restart()
    assert (shared.name_server, shared.broker) == addresses
    assert shared.pid() != pid
    until(lambda: queues(shared, "kept") == 2, "its topic")


@pytest.mark.slow  # a broker may take ten seconds to register again
def test_a_restarted_name_server_learns_of_the_broker_again(shared: LocalRocketMQ) -> None:
    """A broker that is asked to register writes all its properties to its file, which is put back."""
    shared.create_topic("routed", queues=2)
    conf = shared.data_dir / "broker" / "conf.properties"
    before = conf.read_bytes()
    shared.kill("name_server")
    assert not is_open(shared.name_server)
    shared.restart("name_server")
    assert queues(shared, "routed") == 2
    assert conf.with_name("conf.properties.bak").exists()
    assert conf.read_bytes() == before


def test_two_run_side_by_side(shared: LocalRocketMQ) -> None:
    with LocalRocketMQ(name="other", broker_heap_mb=256) as other:
        other.create_topic("theirs")
        assert {shared.name_server, shared.broker}.isdisjoint({other.name_server, other.broker})
        assert queues(other, "theirs") == 4
        assert ready.route(shared.name_server, "theirs") is None


def test_a_paused_broker_can_be_stopped() -> None:
    with LocalRocketMQ(broker_heap_mb=256) as rocketmq:
        pid = rocketmq.pid()
        rocketmq.pause("all")
    assert pid is not None
    assert is_gone(pid)


@pytest.mark.slow  # an orderly end takes the broker ten seconds
def test_a_data_folder_keeps_topics_for_the_next_instance(tmp_path: Path) -> None:
    folder = tmp_path / "a folder with ü"
    with LocalRocketMQ(data_dir=folder, broker_heap_mb=256) as rocketmq:
        rocketmq.create_topic("kept", queues=3)
        assert rocketmq.data_dir == folder
    assert not (folder / "store" / "abort").exists()  # the broker's own mark of a disorderly end
    with LocalRocketMQ(data_dir=folder, broker_heap_mb=256) as rocketmq:
        until(lambda: queues(rocketmq, "kept") == 3, "its topic")
        rocketmq.kill("all")


def test_properties_reach_the_broker(tmp_path: Path) -> None:
    small = {"mappedFileSizeCommitLog": 1_048_576, "autoCreateTopicEnable": True}
    with LocalRocketMQ(broker_config=small, broker_heap_mb=256) as rocketmq:
        # The topic from which others are made exists only if sending may make topics.
        assert ready.route(rocketmq.name_server, "TBW102") is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"broker_config": {"brokerRole": "SLAVE"}}, "Slave's brokerId must be > 0"),
        ({"java_options": ["-XX:+Nonsense"]}, "Unrecognized VM option 'Nonsense'"),
    ],
)
def test_a_broker_that_dies_while_starting_is_an_error_with_the_end_of_its_log(
    arguments: dict[str, Any], words: str
) -> None:
    rocketmq = LocalRocketMQ(**arguments)
    with (
        pytest.raises(LocalBrokerError, match=rf"(?s)the broker failed while starting.*output\.txt.*{words}"),
        rocketmq,
    ):
        pass
    assert repr(rocketmq) == "<LocalRocketMQ broker-a, not started>"


def test_a_data_folder_is_for_one_instance_at_a_time(tmp_path: Path) -> None:
    with LocalRocketMQ(data_dir=tmp_path, broker_heap_mb=256) as rocketmq:
        with pytest.raises(LocalBrokerError, match="in use by another"), LocalRocketMQ(data_dir=tmp_path):
            pass
        assert rocketmq.pid() is not None
        rocketmq.kill("all")


@pytest.mark.parametrize("position", [0, 1])
def test_other_ports_are_taken_if_somebody_was_faster(monkeypatch: pytest.MonkeyPatch, position: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        asked: list[dict[str, Any]] = []

        def free_port(**given: Any) -> int:
            asked.append(given)
            return int(taken) if len(asked) - 1 == position else processes.free_port(**given)

        monkeypatch.setattr(broker, "free_port", free_port)
        monkeypatch.setattr(broker, "require_free", lambda port, purpose: None)
        with LocalRocketMQ(broker_heap_mb=256) as rocketmq:
            assert f"127.0.0.1:{taken}" not in (rocketmq.name_server, rocketmq.broker)
    assert len(asked) == 4


def test_nothing_outlives_a_parent_that_is_killed() -> None:
    with running(["-c", PARENT]) as parent:
        assert parent.stdout is not None
        broker_pid, name_server_pid, data_dir = parent.stdout.readline().split()
        assert not is_gone(int(broker_pid))
        parent.kill()
        until(lambda: is_gone(int(broker_pid)) and is_gone(int(name_server_pid)), "the end of both processes")
        until(lambda: not Path(data_dir).exists(), "the end of its folder")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_the_address_and_stops_on_a_signal(number: signal.Signals) -> None:
    with running([*COMMAND, "--topic", "t:2", "--heap", "256"]) as command:
        assert command.stdout is not None
        name_server = command.stdout.readline().strip()
        route = ready.route(name_server, "t") or {}
        assert [entry["readQueueNums"] for entry in route["queueDatas"]] == [2]
        command.send_signal(number)
        rest, errors = command.communicate(timeout=at_most(30))
    assert command.returncode == 0
    assert rest == ""
    assert "Traceback" not in errors
    assert not is_open(name_server)


def test_the_command_interrupted_before_it_is_up_leaves_nothing_and_says_130(tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    with running(COMMAND, env=environ) as command:
        until(
            lambda: bool(list(tmp_path.glob("rmqio-local-*/broker/output.txt"))),
            "a broker that starts",
            alive=[runs(command)],
        )
        command.send_signal(signal.SIGINT)
        output, errors = command.communicate(timeout=at_most(30))
    assert command.returncode == 130
    assert output == ""
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_the_command_ends_with_an_error_if_the_broker_dies() -> None:
    with running(COMMAND) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.readline()
        (pid,) = re.findall(r"broker 127\.0\.0\.1:\d+ \(pid (\d+)\) is up", command.stderr.readline())
        os.kill(int(pid), signal.SIGKILL)
        _, errors = command.communicate(timeout=at_most(30))
    assert command.returncode == 1
    assert "ended unexpectedly" in errors


def test_the_third_start_maps_the_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "maven").symlink_to(cache_dir() / "maven")
    monkeypatch.setenv("RMQIO_CACHE", str(tmp_path))
    monkeypatch.delenv("RMQIO_LOCAL_CLASS_DATA", raising=False)
    for _ in range(2):
        with LocalRocketMQ(broker_heap_mb=256):
            assert not [*tmp_path.glob("local/*.jsa")]
    until(lambda: bool([*tmp_path.glob("local/*.jsa")]), "the file of classes", still_s=120)
    with LocalRocketMQ(broker_heap_mb=256) as rocketmq:
        for part in ("broker", "name_server"):
            assert ".jsa" in Path(f"/proc/{rocketmq.pid(part)}/maps").read_text()
        rocketmq.create_topic("t")
