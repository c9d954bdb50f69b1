"""Makes Beam read the arguments of functions sooner."""

from __future__ import annotations

import types
from collections.abc import Callable

from apache_beam.transforms import core

__all__ = ["read_signatures_sooner"]

_inspect = core.get_function_args_defaults


def read_signatures_sooner() -> None:
    """Changes Beam in this process, for good: the arguments that it finds are the same.

    When a pipeline is built, translated and run, Beam reads those of all methods of each DoFn several times, most of
    them its own. That was a third of the time in which a small pipeline runs.
    """
    core.get_function_args_defaults = arguments_and_defaults


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
