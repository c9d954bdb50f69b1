"""Flink's REST API, for what Beam's job server cannot do: cancel a job, and stop it with a savepoint.

https://nightlies.apache.org/flink/flink-docs-release-1.19/docs/ops/rest_api/
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Final

from rmqio.runners.errors import FlinkError, FlinkSilent

_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.2
_MAX_SILENT_POLLS: Final = 10
_START_S: Final = 60.0
_STARTING: Final = ("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RECONCILING")
ENDED: Final = frozenset({"FINISHED", "CANCELED", "FAILED", "SUSPENDED"})


@dataclass(frozen=True, slots=True)
class FlinkJob:
    """A job as Flink lists it."""

    id: str
    name: str
    state: str
    """RUNNING, FINISHED, CANCELED, FAILED, ..."""
    duration_ms: int

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


class FlinkRest:
    """The REST endpoint of a Flink cluster, or of the one inside a job server.

    Args:
      address: host:port or URL.

    All methods raise `FlinkError` if Flink does not answer or refuses.
    """

    def __init__(self, address: str) -> None:
        self.url = (address if "://" in address else f"http://{address}").rstrip("/")

    def overview(self) -> dict[str, Any]:
        """Return slots, TaskManagers and jobs, as `/overview` reports them."""
        return dict(self._call("GET", "/overview"))

    def jobs(self) -> list[FlinkJob]:
        """Return all jobs that Flink knows, including ended ones."""
        found = self._call("GET", "/jobs/overview")["jobs"]
        return [FlinkJob(each["jid"], each["name"], each["state"], each["duration"]) for each in found]

    def cancel(self, job_id: str) -> None:
        """Request the cancellation of a job. It ends some time later."""
        self._call("PATCH", f"/jobs/{job_id}?mode=cancel")

    def stop(self, job_id: str, folder: str | None = None, *, drain: bool = False, timeout_s: float = 600.0) -> str:
        """Stop a job with a savepoint, and return the savepoint's path.

        A savepoint needs all tasks: if some are still starting, this waits for them, for a minute at most.

        Args:
          job_id: the job's id in Flink.
          folder: where the savepoint goes; None: as the cluster is configured.
          drain: advance the watermark to the end of time first. Such a job cannot be resumed.
          timeout_s: limits the wait for the savepoint.
        """
        self._wait_for_tasks(job_id, min(_START_S, timeout_s))
        asked = {"drain": drain} | ({"targetDirectory": folder} if folder is not None else {})
        trigger = self._call("POST", f"/jobs/{job_id}/stop", asked)["request-id"]
        until = time.monotonic() + timeout_s
        failures = 0
        while time.monotonic() < until:
            try:
                found = self._call("GET", f"/jobs/{job_id}/savepoints/{trigger}")
            except FlinkSilent as error:
                failures += 1
                if failures > _MAX_SILENT_POLLS:
                    where = folder or "the folder that Flink is configured with"
                    what = f"{error}. The job was asked to stop, and its savepoint may be in {where}"
                    raise FlinkSilent(what) from error
                time.sleep(_POLL_S)
                continue
            if found["status"]["id"] == "COMPLETED":
                operation = found.get("operation") or {}
                if "location" not in operation:
                    raise FlinkError(f"no savepoint of job {job_id}: {_cause(operation.get('failure-cause'))}")
                return str(operation["location"])
            time.sleep(_POLL_S)
        raise FlinkError(f"the savepoint of job {job_id} was not done after {timeout_s:.0f} s; it may still complete")

    def _wait_for_tasks(self, job_id: str, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while starting := self._starting(job_id):
            if time.monotonic() > until:
                waiting = f"{starting} of its tasks did not start within {timeout_s:.0f} s"
                raise FlinkError(f"no savepoint of job {job_id}: {waiting}; the cluster may have no free slots")
            time.sleep(_POLL_S)

    def _starting(self, job_id: str) -> int:
        vertices = self._call("GET", f"/jobs/{job_id}")["vertices"]
        return sum(int(each["tasks"].get(state, 0)) for each in vertices for state in _STARTING)

    def metrics(self, job_id: str) -> dict[str, Any]:
        """Return records and bytes by vertex, as `/jobs/ID` reports them."""
        return {each["name"]: each["metrics"] for each in self._call("GET", f"/jobs/{job_id}")["vertices"]}

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
            with _OPENER.open(request, timeout=_TIMEOUT_S) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            raise FlinkError(f"Flink at {self.url} refuses {method} {path}: {_told(error)}") from error
        except (OSError, ValueError) as error:
            raise FlinkSilent(f"Flink at {self.url} does not answer {method} {path}: {error}") from error


# Proxies of the environment are for the outside world; Flink's REST endpoint is not reached through them.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _told(error: urllib.error.HTTPError) -> str:
    """Return the first line of Flink's error."""
    try:
        errors = json.loads(error.read())["errors"]
        return str(errors[-1]).strip().splitlines()[0]
    except (OSError, ValueError, LookupError):
        return str(error)


def _cause(cause: dict[str, Any] | None) -> str:
    lines = str((cause or {}).get("stack-trace", "Flink does not say why")).strip().splitlines()
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return (causes or lines)[-1]
