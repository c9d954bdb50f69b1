"""Flink's REST API: what Beam's job server cannot do with a job, cancel it and stop it with a savepoint.

https://nightlies.apache.org/flink/flink-docs-release-1.19/docs/ops/rest_api/
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Final

from rmqio.runners.flink.errors import FlinkError

_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.2
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
    """The REST endpoint of a Flink cluster, or of the one inside of a job server.

    Args:
      address: host:port or URL.

    All methods raise `FlinkError`: it does not answer, or refuses.
    """

    def __init__(self, address: str) -> None:
        self.url = (address if "://" in address else f"http://{address}").rstrip("/")

    def overview(self) -> dict[str, Any]:
        """Slots, TaskManagers and jobs, as `/overview` tells them."""
        return dict(self._call("GET", "/overview"))

    def jobs(self) -> list[FlinkJob]:
        """All that it knows, those that have ended too."""
        found = self._call("GET", "/jobs/overview")["jobs"]
        return [FlinkJob(each["jid"], each["name"], each["state"], each["duration"]) for each in found]

    def cancel(self, job_id: str) -> None:
        """Ask for the end of a job. It ends some time later."""
        self._call("PATCH", f"/jobs/{job_id}?mode=cancel")

    def stop(self, job_id: str, folder: str | None = None, *, drain: bool = False, timeout_s: float = 600.0) -> str:
        """Stop a job with a savepoint; its path.

        Args:
          job_id: as Flink has it.
          folder: where the savepoint goes; None: where the cluster's configuration says.
          drain: let the watermark go to the end of time first. Such a job cannot be resumed.
          timeout_s: bounds the wait for it.
        """
        asked = {"drain": drain} | ({"targetDirectory": folder} if folder is not None else {})
        trigger = self._call("POST", f"/jobs/{job_id}/stop", asked)["request-id"]
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            found = self._call("GET", f"/jobs/{job_id}/savepoints/{trigger}")
            if found["status"]["id"] == "COMPLETED":
                operation = found.get("operation") or {}
                if "location" not in operation:
                    raise FlinkError(f"no savepoint of job {job_id}: {_cause(operation.get('failure-cause'))}")
                return str(operation["location"])
            time.sleep(_POLL_S)
        raise FlinkError(f"the savepoint of job {job_id} was not done after {timeout_s:.0f} s; it may still be made")

    def metrics(self, job_id: str) -> dict[str, Any]:
        """Records and bytes by vertex, as `/jobs/ID` tells them."""
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
            raise FlinkError(f"Flink at {self.url} does not answer {method} {path}: {error}") from error


# A proxy of the environment is for the world outside; Flink's REST endpoint has no business there.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _told(error: urllib.error.HTTPError) -> str:
    """The first line of what it says."""
    try:
        errors = json.loads(error.read())["errors"]
        return str(errors[-1]).strip().splitlines()[0]
    except (OSError, ValueError, LookupError):
        return str(error)


def _cause(cause: dict[str, Any] | None) -> str:
    lines = str((cause or {}).get("stack-trace", "Flink does not say why")).strip().splitlines()
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return (causes or lines)[-1]
