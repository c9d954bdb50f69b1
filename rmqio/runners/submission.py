"""What happens before any work starts: a pipeline's requirements are compared with what its runner offers.

The runner refuses the pipeline, warns, or shows a table. Topics and positions are checked, too.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

from apache_beam.options.pipeline_options import PipelineOptions

from rmqio.errors import LocalError
from rmqio.interfaces import ENDLESS_READ, EXACTLY_ONCE, IDS, RANDOM_IDS
from rmqio.runners.beam.portable import (
    AppliedPTransform,
    beam_runner_api_pb2,
    common_urns,
    composites,
    has_option,
    portable_form,
)
from rmqio.runners.capabilities import TABLE, Cell, Mode, Requirement, Verdict
from rmqio.runners.checkpoints import CheckpointOptions
from rmqio.runners.errors import NotReady
from rmqio.runners.tracebacks import hide_callers

# The requirements of a pipeline, read from its portable form in Beam.

_PAR_DO: Final = common_urns.primitives.PAR_DO.urn
_GROUP_BY_KEY: Final = common_urns.primitives.GROUP_BY_KEY.urn
_FLATTEN: Final = common_urns.primitives.FLATTEN.urn
_IMPULSE: Final = common_urns.primitives.IMPULSE.urn
# The modules of transforms that come with Beam and with rmqio; see `_Pipeline.label`.
_LIBRARIES: Final = (b"apache_beam.", b"rmqio.transforms.")


def requirements_of(pipeline: Any) -> dict[Requirement, list[str]]:
    """Returns the needs of a pipeline, each with the names of the transforms that have it, in pipeline order.

    A name is the label under which a transform of Beam or rmqio was applied, not the label of an inner part.
    """
    found: dict[Requirement, dict[str, None]] = defaultdict(dict)
    graph = _Pipeline(pipeline)
    for name, transform in graph.leaves():
        for need in graph.needs(name, transform):
            found[need][graph.label(name)] = None
    return {need: list(found[need]) for need in Requirement if need in found}


def random_ids(pipeline: Any) -> dict[str, list[str]]:
    """Returns the writes to RocketMQ whose copies cannot be told from new messages: their names by what they say."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, shown in _displayed(pipeline):
        if (ids := shown.get(IDS, "")).startswith(RANDOM_IDS):
            found[ids].append(name)
    return found


def exactly_once_writes(pipeline: Any) -> list[str]:
    """Returns the names of the writes to RocketMQ that store no message twice."""
    return [name for name, shown in _displayed(pipeline) if EXACTLY_ONCE in shown and IDS in shown]


def _displayed(pipeline: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Returns the transforms' names and texts of their display data."""
    for each in pipeline.components.transforms.values():
        shown = (beam_runner_api_pb2.LabelledPayload.FromString(item.payload) for item in each.display_data)
        yield str(each.unique_name), {item.key: item.string_value for item in shown}


class _Pipeline:
    def __init__(self, pipeline: Any) -> None:
        self._components = pipeline.components
        self._parents = {
            part: name for name, each in self._components.transforms.items() for part in each.subtransforms
        }
        self._roots = pipeline.root_transform_ids
        self._behind: set[str] = set()
        """The collections that come from an endless read."""
        self._merged: set[str] = set()
        """The collections in windows that are already merged, since they come from a GroupByKey in the same windows."""

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Returns the transforms without parts, in pipeline order, so that producers come before their readers."""

        def walk(names: Any) -> Iterator[tuple[str, Any]]:
            for name in names:
                transform = self._components.transforms[name]
                if transform.subtransforms:
                    yield from walk(transform.subtransforms)
                elif not transform.outputs or not set(transform.outputs.values()) <= set(transform.inputs.values()):
                    yield name, transform  # others only rename their input

        return walk(self._roots)

    def label(self, name: str) -> str:
        """Returns the outermost enclosing transform that is not the user's own: what the user has written."""
        path = [self._components.transforms[each] for each in reversed(list(self._path(name)))]
        for each in path:
            if each.unique_name and each.annotations.get("python_type", b"").startswith(_LIBRARIES):
                return str(each.unique_name)
        return str(path[-1].unique_name)

    def needs(self, name: str, transform: Any) -> Iterator[Requirement]:
        """Yields the needs of a leaf, after those of its producers."""
        urn = transform.spec.urn
        pardo = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload if urn == _PAR_DO else b"")
        outputs, inputs = [*transform.outputs.values()], dict(transform.inputs)
        sides = {inputs.pop(tag) for tag in pardo.side_inputs}
        is_live = any(map(self._is_unbounded, inputs.values()))
        makes_unbounded = not is_live and any(map(self._is_unbounded, outputs))
        is_splittable = bool(pardo.restriction_coder_id)
        in_endless_read = any(
            ENDLESS_READ in self._components.transforms[each].annotations for each in self._path(name)
        )

        if makes_unbounded:
            yield Requirement.ENDLESS_READS if in_endless_read else Requirement.UNBOUNDED
        elif not is_live and (is_splittable or (not inputs and urn != _IMPULSE)):
            yield Requirement.ENDING_READS
        if is_splittable:
            yield Requirement.SPLITTABLE
        if pardo.requests_finalization:
            yield Requirement.FINALIZATION
        if pardo.state_specs:
            yield Requirement.STATE
        if any(each.HasField("ordered_list_spec") for each in pardo.state_specs.values()):
            yield Requirement.ORDERED_STATE
        if sides:
            yield Requirement.SIDE_INPUTS
        yield from self._timers(pardo, is_live)
        if urn == _GROUP_BY_KEY and self._merges(*inputs.values()):
            yield Requirement.MERGING_WINDOWS
        is_unmerged = any(self._merges(each) and each not in self._merged for each in inputs.values())
        if is_unmerged and (pardo.state_specs or pardo.timer_family_specs):
            yield Requirement.UNMERGED_STATE
        self._note_merged(urn, inputs.values(), outputs)
        if is_live and (urn == _GROUP_BY_KEY or pardo.state_specs or pardo.timer_family_specs):
            yield Requirement.KEPT_STATE

        is_behind = not self._behind.isdisjoint(inputs.values())
        is_shuffle = urn == _GROUP_BY_KEY or (urn == _FLATTEN and len(inputs) > 1)
        if not self._behind.isdisjoint(sides) or (
            is_behind and (is_shuffle or (is_splittable and not in_endless_read))
        ):
            yield Requirement.SHUFFLES_BEHIND
        if is_behind or (in_endless_read and makes_unbounded):
            self._behind.update(outputs)

    def _path(self, name: str) -> Iterator[str]:
        """Yields the transform and those that enclose it."""
        at: str | None = name
        while at is not None:
            yield at
            at = self._parents.get(at)

    def _is_unbounded(self, collection: str) -> bool:
        found = self._components.pcollections[collection].is_bounded
        return bool(found == beam_runner_api_pb2.IsBounded.UNBOUNDED)

    def _merges(self, collection: str) -> bool:
        status = self._components.windowing_strategies[self._windowing(collection)].merge_status
        return bool(status == beam_runner_api_pb2.MergeStatus.NEEDS_MERGE)

    def _note_merged(self, urn: str, inputs: Iterable[str], outputs: Iterable[str]) -> None:
        if urn == _GROUP_BY_KEY:
            self._merged.update(outputs)
            return
        windowings = {self._windowing(each) if each in self._merged else None for each in inputs}
        self._merged.update(each for each in outputs if windowings == {self._windowing(each)})

    def _windowing(self, collection: str) -> str:
        return str(self._components.pcollections[collection].windowing_strategy_id)

    @staticmethod
    def _timers(pardo: Any, is_live: bool) -> Iterator[Requirement]:
        domains = {each.time_domain for each in pardo.timer_family_specs.values()}
        if beam_runner_api_pb2.TimeDomain.EVENT_TIME in domains:
            yield Requirement.LIVE_EVENT_TIMERS if is_live else Requirement.EVENT_TIMERS
        if beam_runner_api_pb2.TimeDomain.PROCESSING_TIME in domains:
            yield Requirement.LIVE_CLOCK_TIMERS if is_live else Requirement.CLOCK_TIMERS


_LOGGER: Final = logging.getLogger("rmqio.runners")
_WIDTHS: Final = (26, 26, 44)
_MOST_NAMES: Final = 4
NO_CHECKPOINT_DIR: Final = "no --checkpoint_dir: a restart starts from scratch"


class ReportOptions(PipelineOptions):
    """`--report`, for programs that end with `rmqio.runners.program.run_program`."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--report",
            action="store_true",
            default=False,
            help="Show what the pipeline needs and what the runner does with it, without running it.",
        )


class Refused(LocalError):
    """The runner would lose data of this pipeline, or wait forever, or cannot do what its options say."""


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Turns a local error before anything runs into a refusal; a worker's error of that kind is not one."""
    try:
        yield
    except (Refused, NotReady):
        raise
    except LocalError as error:
        raise Refused(str(error)) from None  # the text would be shown twice


class Line(NamedTuple):
    """A need of a pipeline, and how the runner meets it."""

    need: Requirement
    where: Sequence[str]
    """The transforms that have it."""
    cell: Cell

    def __str__(self) -> str:
        return f"{self.need.value} ({_listed(self.where)}): {self.cell.text}"


@dataclass(frozen=True, slots=True)
class Report:
    """The report on a pipeline in a mode of a runner."""

    mode: Mode
    lines: tuple[Line, ...]
    of_options: tuple[str, ...]
    """Advice about the options. Their runner logs it by itself when it runs."""
    of_writes: tuple[str, ...] = ()
    """The same about its writes, which log it when they are applied."""

    @property
    def refused(self) -> list[Line]:
        return [line for line in self.lines if line.cell.verdict is Verdict.REFUSED]

    @property
    def warnings(self) -> list[Line]:
        return [line for line in self.lines if line.cell.verdict is Verdict.WARNED]

    def check(self) -> None:
        """Logs each warning. Raises `Refused`."""
        if self.refused:
            raise Refused(f"{self.mode.value} cannot run this pipeline: {'; '.join(map(str, self.refused))}")
        for line in self.warnings:
            _LOGGER.warning("%s: %s", self.mode.value, line)

    def warn_of_options(self) -> None:
        """Logs what is to be said of the options, for runners that say it nowhere else."""
        for said in self.of_options:
            _LOGGER.warning("%s: %s", self.mode.value, said)

    def table(self) -> str:
        """Returns a table for people: a row per need, and a sentence per option."""
        rows: list[tuple[str, str, str]] = [("needed", "by", f"on {self.mode.value}")]
        rows += [(line.need.value, _listed(line.where), _told(line.cell)) for line in self.lines]
        if not self.lines:
            rows.append(("nothing special", "", Verdict.YES.value))
        shown = [text for row in rows for text in _wrapped(row)]
        rule = "  ".join("-" * width for width in _WIDTHS)
        width = sum(_WIDTHS) + 2 * (len(_WIDTHS) - 1)
        said = (*self.of_options, *self.of_writes)
        options = [textwrap.fill(f"warned: {each}", width, subsequent_indent="  ") for each in said]
        return "\n".join([shown[0], rule, *shown[1:], *(["", *options] if options else [])])


def compare(
    pipeline: Any, mode: Mode, *, of_options: Sequence[str] = (), instead: Mapping[Requirement, Cell] | None = None
) -> Report:
    """Returns the report on a pipeline in Beam's portable form. `instead`: cells that options have changed."""
    cells = {need: (instead or {}).get(need, row[mode]) for need, row in TABLE.items()}
    lines = (Line(need, where, cells[need]) for need, where in requirements_of(pipeline).items())
    return Report(
        mode,
        tuple(line for line in lines if line.cell.verdict is not Verdict.NONE),
        tuple(of_options),
        tuple(f"{IDS}: {said} ({_listed(names)})" for said, names in random_ids(pipeline).items()),
    )


def report_of(pipeline: Any) -> Report:
    """The report of a pipeline that has not been run, by its own runner. Raises `LocalError` if that makes none."""
    runner = pipeline.runner
    if not hasattr(runner, "report"):
        raise LocalError(
            f"--report does not support {type(runner).__name__}: use DirectRunner, SparkRunner or FlinkRunner"
        )
    found: Report = runner.report(portable_form(pipeline), pipeline.options)
    return found


def _told(cell: Cell) -> str:
    return ": ".join(filter(None, (cell.verdict.value, cell.text)))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join([*names[:_MOST_NAMES], *([f"{more} more"] if more > 0 else [])])


def _wrapped(row: Sequence[str]) -> list[str]:
    """Returns the lines of a row, with its cells wrapped side by side."""
    cells = [textwrap.wrap(text, width) or [""] for text, width in zip(row, _WIDTHS, strict=True)]
    height = max(map(len, cells))
    padded = [[*cell, *[""] * (height - len(cell))] for cell in cells]
    return [
        "  ".join(f"{text:{width}}" for text, width in zip(line, _WIDTHS, strict=True)).rstrip()
        for line in zip(*padded, strict=True)
    ]


# The common work of our runners when a pipeline is submitted, before any work starts.

_FINE: Final = 0
_REFUSED: Final = 2
_SAVEPOINT: Final = "savepoint_path"


def look_up_topics(pipeline: Any, options: PipelineOptions) -> None:
    """Looks up the topics of reads and writes. Raises `Refused` if one does not exist, with the nearest name.

    It does nothing with `--report`, which needs no broker, and for a job that resumes from a checkpoint: the brokers of
    its topics can be away, and then name servers know no more of these topics.
    """
    if options.view_as(ReportOptions).report or _resumes(options):
        return
    for node in composites(pipeline):
        _look_up(node)


def check_positions(pipeline: Any) -> None:
    """Raises `Refused` if two transforms commit the offsets that are the position of an exactly-once write."""
    committing = [node for node in composites(pipeline) if hasattr(node.transform, "commits")]
    for node in committing:
        for group, topic in sorted(getattr(node.transform, "positions", ())):
            others = [each for each in committing if each is not node and each.transform.commits(group, topic)]
            if others:
                raise Refused(
                    f"{node.full_label} is an exactly-once write, and {others[0].full_label} commits offsets of its "
                    f"group {group!r} for topic {topic!r}, too: messages could be stored twice. Give "
                    "LookBack(group=...) a group that nothing else uses"
                )


def check(report: Report, options: PipelineOptions) -> None:
    """Logs warnings of a report and raises `Refused`; with `--report`, prints it and ends the program.

    Raises:
      SystemExit: with `--report`; the status is 0, or 2 if the runner refuses the pipeline.
    """
    if options.view_as(ReportOptions).report:
        show(report)
    report.check()


def show(report: Report) -> NoReturn:
    """Prints a report and ends the program."""
    print(report.table(), flush=True)
    raise SystemExit(_REFUSED if report.refused else _FINE)


def _look_up(node: AppliedPTransform) -> None:
    look_up = getattr(node.transform, "look_up_topics", None)
    if look_up is None:
        return
    try:
        look_up()
    except LocalError as error:
        hide_callers()
        raise Refused(f"{node.full_label}: {error}") from None


def _resumes(options: PipelineOptions) -> bool:
    """Whether the job can continue from a checkpoint; that of a folder elsewhere is not looked into."""
    if has_option(options, _SAVEPOINT) and options.get_all_options(drop_default=True).get(_SAVEPOINT):
        return True
    folder = options.view_as(CheckpointOptions).checkpoint_dir
    if not folder:
        return False
    if "://" in folder and not folder.startswith("file://"):
        return True
    path = folder.removeprefix("file://")
    return os.path.isdir(path) and bool(os.listdir(path))
