"""The image: what its Dockerfile copies is there and enough, and its entry point starts what Kubernetes asks for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.helpers.imports import sources
from tests.helpers.waiting import at_most

ROOT = Path(__file__).parents[3]
RUNNERS = ROOT / "runners"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, without comments, with continued lines joined."""
    lines = [line for line in (RUNNERS / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for name, rest in instructions():
        if name == "FROM":
            found.append([])
        if found:
            found[-1].append((name, rest))
    return found


def copied(stage: list[tuple[str, str]]) -> list[str]:
    """The files and folders of the repository that a stage copies."""
    found = [rest.split() for name, rest in stage if name == "COPY"]
    return [source for words in found if not words[0].startswith("--from") for source in words[:-1]]


def test_it_is_made_of_known_instructions() -> None:
    known = {"ARG", "FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in instructions()} <= known
    assert len(stages()) == 2
    for name, rest in instructions():
        if name in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(each, str) for each in json.loads(rest))
        if name == "RUN" and "apt-get install" in rest:
            assert "--no-install-recommends" in rest
            assert rest.endswith("rm -rf /var/lib/apt/lists/*")
        if name == "RUN" and rest.startswith("pip"):
            assert "--no-cache-dir" in rest


def test_what_it_copies_is_there() -> None:
    sources = [source for stage in stages() for source in copied(stage)]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_its_extras_exist() -> None:
    (extras,) = (rest.partition("=")[2] for name, rest in stages()[1] if name == "ARG" and rest.startswith("EXTRAS="))
    assert [each for each in extras.split(",") if each not in PROJECT["project"]["optional-dependencies"]] == []


def test_what_pip_installs_is_the_wheel_that_was_built() -> None:
    """The project is the only requirement: all others are those of its own metadata."""
    (building,) = (rest for name, rest in stages()[0] if name == "RUN" and rest.startswith("pip "))
    (installing,) = (rest for name, rest in stages()[1] if name == "RUN" and rest.startswith("pip "))
    (wheels,) = re.findall(r"--wheel-dir (\S+) \.$", building)
    assert ("COPY", f"--from=build {wheels} {wheels}") in stages()[1]
    assert f'"$(echo {wheels}/{PROJECT["project"]["name"]}-*.whl)[${{EXTRAS}}]"' in installing
    assert "pip install" not in building


def test_the_python_of_the_image_is_one_of_the_project() -> None:
    arguments = [rest for name, rest in instructions() if name == "ARG"]
    (version,) = (each.partition("=")[2] for each in arguments if each.startswith("PYTHON="))
    assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]


def test_what_it_starts_is_what_it_copies() -> None:
    (entry,) = (json.loads(rest)[0] for name, rest in stages()[1] if name == "ENTRYPOINT")
    started = {entry}
    for path in RUNNERS.glob("*/kubernetes.yaml"):
        started |= set(re.findall(r"/app/\S+", path.read_text()))
    assert len(started) == 2
    there = {
        "/" + str(Path(words[-1]).relative_to("/") / Path(name).name) if words[-1].endswith("/") else words[-1]: name
        for words in (rest.split() for kind, rest in stages()[1] if kind == "COPY")
        for name in words[:-1]
    }
    for path in started:
        top = next(target for target in there if path.startswith(target))
        assert (ROOT / there[top] / path.removeprefix(top).lstrip("/")).is_file()


def test_nothing_runs_as_root() -> None:
    users = [rest for name, rest in stages()[1] if name == "USER"]
    assert users == ["10001"]
    after = instructions().index(("USER", "10001"))
    assert "RUN" not in [name for name, _ in instructions()[after:]]


def test_what_it_copies_makes_all_packages(tmp_path: Path) -> None:
    """The list of files that the image has of the project, made by its own build from nothing but what is copied."""
    pytest.importorskip("setuptools", reason="Python brings it no more since 3.12")
    source, out = tmp_path / "src", tmp_path / "out"
    source.mkdir()
    for each in copied(stages()[0]):
        if (ROOT / each).is_dir():
            shutil.copytree(ROOT / each, source / each, ignore=shutil.ignore_patterns("__pycache__", "*.so", "build"))
        else:
            shutil.copy(ROOT / each, source / each)
    project = source / "pyproject.toml"  # the setuptools at hand can be older than the one that pip would fetch
    project.write_text(re.sub(r"(?m)^license = (.*)$|^license-files = .*$", r"", project.read_text()))
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=at_most(300), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    paths = [path.relative_to(ROOT).as_posix() for _, path in sources()]
    wanted = [path for path in paths if not path.startswith("pipelines/")]
    assert [each for each in wanted if each not in files] == []
    assert {"rmqio/py.typed", "rmqio/runners/spark/sessions/daemon.py"} <= files
    assert [each for each in files if each.startswith(("tests/", "bench/", "docs/"))] == []


# ---- the entry point -----------------------------------------------------------------------------------------------


def started(tmp_path: Path, *arguments: str, **environment: str) -> list[str]:
    """The command that the entry point runs under tini, which is replaced by a program that prints it."""
    (tmp_path / "tini").write_text('#!/bin/sh\nfor each in "$@"; do echo "$each"; done\n')
    (tmp_path / "tini").chmod(0o755)
    environment |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SPARK_HOME": "/spark"}
    command = [str(RUNNERS / "entrypoint.sh"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=at_most(60), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["-s", "--"]
    return done.stdout.splitlines()[2:]


def test_any_command_is_run_as_it_is(tmp_path: Path) -> None:
    assert started(tmp_path, "python", "-m", "rmqio", "a b") == ["python", "-m", "rmqio", "a b"]


def test_a_driver_is_spark_submit_in_client_mode(tmp_path: Path) -> None:
    more = [
        "--properties-file",
        "/opt/spark/conf/spark.properties",
        "local:///app/pipelines/province.py",
        "--stop=none",
    ]
    assert started(tmp_path, "driver", *more, SPARK_DRIVER_BIND_ADDRESS="10.0.0.7") == [
        "/spark/bin/spark-submit", "--conf", "spark.driver.bindAddress=10.0.0.7", "--deploy-mode", "client", *more,
    ]  # fmt: skip


def test_an_executor_has_its_settings_from_the_environment(tmp_path: Path) -> None:
    found = started(
        tmp_path,
        "executor",
        SPARK_JAVA_OPT_0="-Dspark.a=b c",
        SPARK_JAVA_OPT_1="-Dspark.d=e",
        SPARK_EXECUTOR_MEMORY="2g",
        SPARK_DRIVER_URL="spark://driver:7078",
        SPARK_EXECUTOR_ID="3",
        SPARK_EXECUTOR_CORES="2",
        SPARK_APPLICATION_ID="app",
        SPARK_EXECUTOR_POD_IP="10.0.0.8",
        SPARK_RESOURCE_PROFILE_ID="0",
        SPARK_EXECUTOR_POD_NAME="pod",
    )
    assert found[:6] == ["java", "-Dspark.a=b c", "-Dspark.d=e", "-Xms2g", "-Xmx2g", "-cp"]
    assert found[6:8] == [
        "/spark/conf:/spark/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
    ]
    assert dict(zip(found[8::2], found[9::2], strict=True)) == {
        "--driver-url": "spark://driver:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "app",
        "--hostname": "10.0.0.8",
        "--resourceProfileId": "0",
        "--podName": "pod",
    }


def test_the_classes_of_executors_are_in_the_pyspark_that_the_image_has() -> None:
    pyspark = pytest.importorskip("pyspark", reason="the jars come with the extra 'spark'")
    jars = Path(pyspark.__file__).parent / "jars"
    assert [*jars.glob("spark-kubernetes_*.jar")]
    assert (Path(pyspark.__file__).parent / "bin" / "spark-submit").exists()
