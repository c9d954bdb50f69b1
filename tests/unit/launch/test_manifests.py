"""The manifests of runners/: their fields, what they refer to, and the command lines in them."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

pytest.importorskip("yaml", reason="manifests are YAML; PyYAML comes with the extra 'yaml'")

import yaml

from pipelines.province import program
from rmqio.runners.flink import __main__ as flink
from tests.unit.launch.kinds import KINDS

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "runners"
DOCUMENTS: list[tuple[str, dict[str, Any]]] = [
    (f"{path.parent.name} {each['kind']}", each)
    for path in sorted(FOLDER.glob("*/kubernetes.yaml"))
    for each in yaml.safe_load_all(path.read_text())
]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def errors(document: dict[str, Any]) -> list[str]:
    validator = jsonschema.Draft202012Validator(KINDS[document["kind"]])
    return [f"{'.'.join(map(str, each.path))}: {each.message}" for each in validator.iter_errors(document)]


def named(name: str) -> dict[str, Any]:
    (found,) = (document for title, document in DOCUMENTS if title == name)
    return copy.deepcopy(found)


@pytest.mark.parametrize(("title", "document"), DOCUMENTS, ids=[title for title, _ in DOCUMENTS])
def test_a_manifest_has_the_fields_of_its_kind(title: str, document: dict[str, Any]) -> None:
    assert errors(document) == []


def test_there_is_one_for_each_runner() -> None:
    titles = ["direct Deployment", "flink FlinkDeployment", "flink Job", "spark SparkApplication"]
    assert [title for title, _ in DOCUMENTS] == titles


def _without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda spec: spec.pop(name)


@pytest.mark.parametrize(
    ("title", "change", "message"),
    [
        ("spark SparkApplication", _without("sparkVersion"), "'sparkVersion' is a required property"),
        ("spark SparkApplication", lambda spec: spec.update(argument=["x"]), "'argument' was unexpected"),
        ("spark SparkApplication", lambda spec: spec["driver"].update(memory="1Gi"), "'1Gi' does not match"),
        ("spark SparkApplication", lambda spec: spec["sparkConf"].update(x=8), "8 is not of type 'string'"),
        ("flink FlinkDeployment", lambda spec: spec.update(flinkVersion="1.19"), "'1.19' does not match"),
        ("flink FlinkDeployment", lambda spec: spec["jobManager"]["resource"].update(cpu="1"), "not of type 'number'"),
        ("direct Deployment", _without("selector"), "'selector' is a required property"),
        (
            "direct Deployment",
            lambda spec: spec["template"]["spec"]["containers"][0].update(arg=[]),
            "'arg' was unexpected",
        ),
    ],
)
def test_a_wrong_manifest_is_found(title: str, change: Callable[[dict[str, Any]], object], message: str) -> None:
    document = named(title)
    change(document["spec"])
    (found,) = errors(document)
    assert message in found


def parts(node: Any) -> Iterator[dict[str, Any]]:
    """All objects in a manifest."""
    if isinstance(node, dict):
        yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from parts(each)


@pytest.mark.parametrize(("title", "document"), DOCUMENTS, ids=[title for title, _ in DOCUMENTS])
def test_what_a_manifest_refers_to_is_there(title: str, document: dict[str, Any]) -> None:
    images = {each["image"] for each in parts(document) if "image" in each}
    assert images <= {f"registry.example.com/rmqio:{VERSION}", "flink:1.19-java17"}
    volumes = {volume["name"] for each in parts(document) for volume in each.get("volumes", ())}
    mounted = {mount["name"] for each in parts(document) for mount in each.get("volumeMounts", ())}
    assert mounted == volumes
    if document["kind"] == "Deployment":
        spec = document["spec"]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
        assert spec["template"]["spec"]["securityContext"]["runAsUser"] != 0


_PODS: dict[str, list[tuple[str, str]]] = {
    "Deployment": [("spec.template.spec", "securityContext")],
    "Job": [("spec.template.spec", "securityContext")],
    "SparkApplication": [("spec.driver", "podSecurityContext"), ("spec.executor", "podSecurityContext")],
    "FlinkDeployment": [("spec.podTemplate.spec", "securityContext")],
}
"""By kind, the parts that are pods, or that all pods are merged with, and the field for the security of a pod."""


@pytest.mark.parametrize(("title", "document"), DOCUMENTS, ids=[title for title, _ in DOCUMENTS])
def test_the_user_of_the_image_can_write_to_the_volumes(title: str, document: dict[str, Any]) -> None:
    """A new volume belongs to root: its group is that of the user only with fsGroup."""
    (user,) = re.findall(r"^USER (\d+)$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    for path, field in _PODS[document["kind"]]:
        pod: dict[str, Any] = document
        for name in path.split("."):
            pod = pod[name]
        given = pod.get(field, {})
        if any("volumeMounts" in each for each in parts(pod)):
            assert given.get("fsGroup") == int(user), path
        if "runAsUser" in given:
            assert given["runAsUser"] == int(user), path


def commands() -> Iterator[tuple[str, list[str]]]:
    for title, document in DOCUMENTS:
        for part in parts(document):
            if "args" in part:
                assert part["args"][0] == "python"
                yield title, part["args"][1:]
            if "mainApplicationFile" in part:
                yield title, [part["mainApplicationFile"].removeprefix("local://"), *part["arguments"]]


@pytest.mark.parametrize(("title", "command"), [*commands()], ids=[f"{title} {args[0]}" for title, args in commands()])
def test_the_command_lines_are_understood(
    title: str, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, *options = command
    monkeypatch.setenv("NAMESRV_ADDR", "rocketmq-namesrv:9876")
    if path == "-m":
        assert options[0] == "rmqio.runners.flink"
        assert flink.make_parser().parse_args(options[1:]).port == 50_000
        return
    assert path == "/app/pipelines/province.py"
    if any("SparkRunner" in option for option in options):
        pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
    assert program.options(options).source_topic == "addresses"
    with pytest.raises(SystemExit):
        program.options([*options, "--checkpoint_dri=/x"])
    assert "--checkpoint_dri" in capsys.readouterr().err


def test_the_port_of_the_workers_is_that_of_the_job() -> None:
    submit, workers = (args for title, args in commands() if title.startswith("flink"))
    if "workers" in submit:
        submit, workers = workers, submit
    assert f"--environment_config=127.0.0.1:{workers[-1].partition('=')[2]}" in submit


def test_the_spark_of_the_manifest_is_that_of_the_image() -> None:
    """pip takes the newest PySpark that the extra allows. The oldest ones have no streams."""
    pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
    from rmqio.runners.spark.beam.versions import PYSPARK

    version = named("spark SparkApplication")["spec"]["sparkVersion"]
    assert tuple(map(int, version.split(".")[:2])) == PYSPARK.last


def test_the_flink_of_the_manifest_is_that_of_the_job_server() -> None:
    spec = named("flink FlinkDeployment")["spec"]
    version = spec["flinkVersion"].removeprefix("v").replace("_", ".")
    assert spec["image"].startswith(f"flink:{version}-")
    assert f":flink:{version}:job-server:" in (ROOT / "rmqio" / "runners" / "flink" / "beam.py").read_text()


def test_the_settings_are_those_of_the_configuration_beside() -> None:
    lines = [line.split() for line in (FOLDER / "spark/spark-defaults.conf").read_text().splitlines() if line[0] != "#"]
    assert named("spark SparkApplication")["spec"]["sparkConf"] == dict(lines)
    settings = yaml.safe_load((FOLDER / "flink/config.yaml").read_text())
    assert named("flink FlinkDeployment")["spec"]["flinkConfiguration"] == settings
