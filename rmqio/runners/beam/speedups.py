"""Makes Beam faster where it builds pipelines and keeps state, with the same results."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import apache_beam as beam
import objsize
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core, userstate

__all__ = ["ViewedOptions", "speed_up_beam"]


class ViewedOptions(PipelineOptions):
    """Beam's options; a view of a class is made when it is first requested, and kept.

    Beam requests a view for each transform and each comparison of types, and makes an `ArgumentParser` for each view,
    in half a millisecond. That is a third of the time in which it builds a pipeline of SQL.
    """

    def view_as(self, cls: type[Any]) -> Any:
        """Returns the options as an instance of a class of options. All views have the same values."""
        views: dict[type, tuple[PipelineOptions, object, tuple[str, ...] | None]] = self.__dict__.setdefault(
            "_views", {}
        )
        flags = None if self._flags is None else tuple(self._flags)
        view, values, parsed = views.get(cls, (None, None, None))
        if view is None or values is not self._all_options or parsed != flags or flags is None:
            view = super().view_as(cls)
            views[cls] = (view, self._all_options, flags)
        return view

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_views"}


_inspect = core.get_function_args_defaults
_find_specs = userstate.get_dofn_specs

_Specs = tuple[frozenset[userstate.StateSpec], frozenset[userstate.TimerSpec]]
_found: WeakKeyDictionary[type, dict[frozenset[str], _Specs]] = WeakKeyDictionary()
"""By class, and by the attributes of the class that an object replaces."""
_DYNAMIC = ("__dir__", "__getattr__", "__getattribute__")


def speed_up_beam() -> None:
    """Changes Beam in this process, for good. Idempotent.

    When a pipeline is built, translated and run, Beam reads the arguments of all methods of each DoFn several times,
    most of them its own, also to find its state and timers. That was a third of the time in which a small pipeline
    runs.

    Its cache of state and side inputs measures each value that goes into it. Since its version 0.7, objsize begins with
    a look at all modules, which takes a millisecond, to leave out their variables. Beam measures no functions, which
    are what leads there.
    """
    core.get_function_args_defaults = arguments_and_defaults
    userstate.get_dofn_specs = state_and_timers
    if settings := getattr(objsize, "default_settings", None):
        settings.update(exclude_modules_globals=False)


def arguments_and_defaults(function: Callable[..., object]) -> tuple[list[str], list[object]]:
    """Returns the names of a function's positional arguments, and the defaults of the last of them.

    The answer is that of `core.get_function_args_defaults`, which makes an `inspect.Signature`. That is called only for
    what is no plain function or method: wrappers, built-ins and objects.
    """
    is_bound = isinstance(function, types.MethodType)
    plain = function.__func__ if isinstance(function, types.MethodType) else function
    if type(plain) is not types.FunctionType or not plain.__dict__.keys().isdisjoint(("__wrapped__", "__signature__")):
        return _inspect(function)  # type: ignore[no-any-return]
    count = plain.__code__.co_argcount
    if is_bound and not count:
        return _inspect(function)  # type: ignore[no-any-return]  # `self` is in *args, or there is none
    names = plain.__code__.co_varnames[is_bound:count]
    defaults = plain.__defaults__ or ()
    return list(names), list(defaults[max(0, len(defaults) - len(names)) :])


def state_and_timers(dofn: beam.DoFn) -> tuple[set[userstate.StateSpec], set[userstate.TimerSpec]]:
    """Returns the specs that the methods of a DoFn name. The answer is that of `userstate.get_dofn_specs`.

    It looks at each class once, unless objects have methods of their own, or attributes that are computed.
    """
    of_object = vars(dofn)
    if any(isinstance(value, types.MethodType) for value in of_object.values()):
        return _find_specs(dofn)  # type: ignore[no-any-return]
    of_class = _found.get(type(dofn))
    if of_class is None:
        of_class = _found[type(dofn)] = {}
    replaced = frozenset(name for name in of_object if hasattr(type(dofn), name))
    specs = of_class.get(replaced)
    if specs is None:
        states, timers = _find_specs(dofn)
        if _asks_objects(type(dofn), replaced):
            return states, timers
        specs = of_class[replaced] = frozenset(states), frozenset(timers)
    return set(specs[0]), set(specs[1])


def _asks_objects(dofn: type, replaced: frozenset[str]) -> bool:
    """Whether the methods, or their arguments, can be others in each object of a class."""
    own = {name for name in set(dir(dofn)) - replaced if _static(dofn, name) is not _static(beam.DoFn, name)}
    return not own.isdisjoint(_DYNAMIC) or any(
        f"_inspect_{name}" in own or _is_computed(_static(dofn, name)) for name in own
    )


def _static(of: type, name: str) -> object:
    return inspect.getattr_static(of, name, None)


def _is_computed(attribute: object) -> bool:
    is_method = isinstance(attribute, types.FunctionType | classmethod | staticmethod)
    return hasattr(type(attribute), "__get__") and not is_method
