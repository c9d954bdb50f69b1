"""Beam's in-process runner; it first checks whether it can run the pipeline."""

from __future__ import annotations

import _thread
import contextlib
import queue
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions

from rmqio.repeats import Ending
from rmqio.runners.beam import versions
from rmqio.runners.beam.in_process import FnApiRunner, followed, has_unbounded, samplers_end
from rmqio.runners.beam.portable import portable_form, reads_among
from rmqio.runners.capabilities import Cell, Mode, Requirement, Verdict
from rmqio.runners.checkpoints import CheckpointOptions
from rmqio.runners.submission import Report, check, check_positions, compare, look_up_topics
from rmqio.runners.tracebacks import without_callers

# Ctrl-C ends a pipeline that runs in this process, also if what runs at that moment drops the exception.


class _Interrupt(KeyboardInterrupt):
    """Python tells when it is dropped: it has no weak references to instances of a class in C."""


_Interrupt.__module__, _Interrupt.__qualname__ = "builtins", KeyboardInterrupt.__name__  # Beam's texts name it


@contextlib.contextmanager
def interrupts_until_raised() -> Iterator[None]:
    """Raises `KeyboardInterrupt` out of the block after Ctrl-C, wherever in it the signal arrives.

    Python raises the exception in whatever runs: a destructor, a callback or an `except:`, which drop it, and an
    endless pipeline would go on. Here, one that nothing refers to any more, while the block still runs, is raised
    again. Nothing changes outside the main thread, and for a program with a handler of its own.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    raised: list[weakref.ref[_Interrupt]] = []
    dropped: queue.SimpleQueue[object] = queue.SimpleQueue()
    is_over = False

    def made() -> _Interrupt:
        if not raised:
            _thread.start_new_thread(raise_again, ())  # the lock of threads may be held by what is interrupted
        error = _Interrupt()
        raised.append(weakref.ref(error, dropped.put))
        return error

    def interrupt(*_: Any) -> None:
        raise made()  # no variable of a frame in its traceback refers to it

    def raise_again() -> None:
        # In a thread: a signal's handler runs in the middle of a destructor in Python, which would drop this one, too.
        while dropped.get() is not None and not is_over:
            _thread.interrupt_main()

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except _Interrupt as error:  # a process that a class of another name ends has status 1
        raise KeyboardInterrupt().with_traceback(error.__traceback__) from error.__cause__
    finally:
        is_over = True
        dropped.put(None)
        signal.signal(signal.SIGINT, signal.default_int_handler)


_on_followed: Final[ContextVar[Callable[[list[Any]], None] | None]] = ContextVar("_on_followed", default=None)
"""What to do with the transforms whose stages have others behind them, in the pipeline that this thread runs."""
_NO_CHECKPOINTS: Final = (
    "--checkpoint_dir has no effect: this runner keeps none; reads can go on from the offsets of their group"
)
_SEVERAL_WORKERS: Final = Cell(
    Verdict.REFUSED,
    "it would end at once and read nothing; leave --direct_num_workers at 1, or give the read a stop (--stop latest)",
    (),
)


class DirectRunner(FnApiRunner):
    """Runs pipelines in this process. Beam's own runner of this name can choose another one, and download it.

    Raises `Refused` for a pipeline that would wait forever, and for one that reads a topic that does not exist. It
    raises an error of user code as it is, with the transform's name and without Beam's frames. Raises `LocalError` on a
    Beam that it was not tested with, unless `RMQIO_UNTESTED_VERSIONS` is 1.
    """

    looks_up_topics: Final = True
    """For transforms, which need not do in a worker what was done when the pipeline was submitted."""

    def run_pipeline(self, pipeline: Any, options: PipelineOptions) -> Any:
        """Runs the pipeline to its end and returns its result."""
        versions.check("DirectRunner")
        check_positions(pipeline)
        report = self.report(portable_form(pipeline), options)
        check(report, options)
        report.warn_of_options()
        look_up_topics(pipeline, options)
        run = interrupts_until_raised()(super().run_pipeline)
        with Ending() as ending, samplers_end():
            token = _on_followed.set(lambda leaves: ending.awaited_by(reads_among(pipeline, leaves)))
            try:
                result = without_callers(lambda: run(pipeline, options))
            finally:
                _on_followed.reset(token)
            ending.come()
        return result

    def create_stages(self, pipeline_proto: Any) -> Any:
        context, stages = super().create_stages(pipeline_proto)
        then = _on_followed.get()
        # In a pipeline with endless elements, no end comes.
        if then is not None and not has_unbounded(pipeline_proto):
            then(followed(stages))
        return context, stages

    def report(self, pipeline: Any, options: PipelineOptions) -> Report:
        """Reports how this runner meets the needs of a pipeline in Beam's portable form."""
        workers = options.view_as(DirectOptions).direct_num_workers
        return compare(
            pipeline,
            Mode.DIRECT,
            of_options=[_NO_CHECKPOINTS] if options.view_as(CheckpointOptions).checkpoint_dir else [],
            instead=None if workers == 1 else {Requirement.ENDLESS_READS: _SEVERAL_WORKERS},
        )
