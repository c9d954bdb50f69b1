"""Functions of the user's own, as a plan knows them. Their code never travels: workers import it by name."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rmqio.errors import RmqioError
from rmqio.sql.errors import nearest
from rmqio.sql.expressions import Expr
from rmqio.sql.types import SqlType
from rmqio.sql.values import RAISED, failure_reason

# Finds a function by its name: in the driver when it is created, in each worker before it is called.

HOW: Final = (
    "workers need it, too: on other machines bring it with --setup_file or --extra_package, or on Spark with "
    "--spark_conf spark.submit.pyFiles=FILE"
)
_LOCK: Final = threading.RLock()


class FunctionError(RmqioError):
    """A function of the user's own that failed, or is not there in a worker."""


class NotFound(Exception):
    """There is no such module or attribute; the text says what there is."""


def split_path(path: str, folders: Sequence[str]) -> tuple[str, str]:
    """Returns module and attribute of `module.name`, `package.module:name` or `module.Class.name`.

    Raises `NotFound` for another text, and if there is no such module.
    """
    module, colon, attribute = path.partition(":")
    parts = [*module.split("."), *(attribute.split(".") if colon else ())]
    if not all(each.isidentifier() for each in parts) or len(parts) < 2:
        raise NotFound(
            f"{path!r} is not the name of a function; it must be like 'module.name' or 'package.module:name'"
        )
    if colon:
        return module, attribute
    for count in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:count])
        if _exists(name, folders):
            return name, ".".join(parts[count:])
    raise NotFound(_missing(parts[0], folders))


def find_attribute(module: str, attribute: str, folders: Sequence[str]) -> Any:
    """Returns the object. Raises `NotFound`."""
    owner: Any = imported(module, folders)
    for name in attribute.split("."):
        try:
            owner = getattr(owner, name)
        except AttributeError:
            there = [
                each
                for each, value in vars(owner).items()
                if not each.startswith("_") and callable(value) and getattr(value, "__module__", module) == module
            ]
            hint = nearest(name, there) or (f"; there are {', '.join(there[:10])}" if there else "")
            where = f"the module {module}" if isinstance(owner, ModuleType) else attribute.rpartition(f".{name}")[0]
            raise NotFound(f"{where} has no {name}{hint}") from None
    return owner


def imported(name: str, folders: Sequence[str]) -> ModuleType:
    """Imports a module; the folders go before Python's own path. Raises `NotFound`, also if the module fails."""
    with _LOCK, _Path(folders):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name and (name == error.name or name.startswith(f"{error.name}.")):
                raise NotFound(_missing(name, folders)) from None
            raise NotFound(f"the module {name} cannot be imported: {error}") from error
        except RAISED as error:
            raise NotFound(f"the module {name} cannot be imported: {failure_reason(error)}") from error
    first = name.partition(".")[0]
    for folder in folders:
        beside = [Path(folder, f"{first}.py"), Path(folder, first, "__init__.py")]
        if any(each.is_file() for each in beside) and not _is_in(module, folder):
            raise NotFound(
                f"the module {name} is another one, {getattr(module, '__file__', None) or 'of Python itself'}, and "
                f"hides the one in {folder}: rename that"
            )
    return module


class _Path:
    """The folders before Python's path while a module is imported, and after it from then on.

    Before it for the import, so that no installed package hides a file beside the script; not for good, so that no
    file beside the script hides what others import.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = [each for each in folders if os.path.isdir(each)]

    def __enter__(self) -> None:
        sys.path[:0] = self._folders
        importlib.invalidate_caches()

    def __exit__(self, *_: object) -> None:
        for each in self._folders:
            sys.path.remove(each)
            if each not in sys.path:
                sys.path.append(each)


def _exists(name: str, folders: Sequence[str]) -> bool:
    with _LOCK, _Path(folders):
        try:
            return name in sys.modules or importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            return False
        except RAISED as error:
            raise NotFound(f"the module {name} cannot be imported: {failure_reason(error)}") from error


def _is_in(module: ModuleType, folder: str) -> bool:
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return any(each and Path(each).resolve().is_relative_to(Path(folder).resolve()) for each in places)


def _missing(name: str, folders: Sequence[str]) -> str:
    there = sorted({each.stem for folder in folders for each in Path(folder).glob("*.py")})
    where = f" in {folders[0]} and" if folders else ""
    return f"there is no module {name}{nearest(name, there)}; it is looked for{where} on Python's path, and {HOW}"


def folder_of(file: str) -> tuple[str, ...]:
    """Returns where the modules of a script are looked for: beside it, or where the program runs."""
    path = Path(file).resolve()
    return (str(path.parent if file and path.is_file() else Path.cwd()),)


SCALAR: Final = "scalar"
TABLE: Final = "table"
AGGREGATE: Final = "aggregate"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter. If its type cannot be NULL, the function is not called with one."""

    name: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function that CREATE FUNCTION has named.

    Attributes:
      name: as it is written there.
      kind: `SCALAR`, `TABLE` or `AGGREGATE`.
      module, attribute: where Python finds it.
      folders: where modules are looked for, beside Python's own path.
      parameters: in order.
      required: how many arguments a call has at least.
      is_variadic: the last parameter takes any number of arguments.
      result: the type of a value; of a table function, the ROW of its columns.
      is_deterministic: equal calls give equal results, so that one is enough.
    """

    name: str
    kind: str
    module: str
    attribute: str
    folders: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    required: int
    is_variadic: bool
    result: SqlType
    is_deterministic: bool

    def usage(self) -> str:
        """Returns how it is called: `clean(text STRING, [n BIGINT])`."""
        shown = []
        for position, each in enumerate(self.parameters):
            text = f"{each.name} {each.type.text}"
            is_last = position == len(self.parameters) - 1
            is_repeated = self.is_variadic and is_last
            shown.append(f"{text}, ..." if is_repeated else text if position < self.required else f"[{text}]")
        return f"{self.name}({', '.join(shown)})"

    def parameter(self, position: int) -> Parameter:
        """Returns the parameter of an argument."""
        return self.parameters[min(position, len(self.parameters) - 1)]


@dataclass(frozen=True, slots=True)
class UserCall(Expr):
    """A call. The type of a table function's call is an array of its rows. `shown`: as SQL writes it, for messages."""

    function: UserFunction
    arguments: tuple[Expr, ...]
    shown: str = field(default="", compare=False)

    def children(self) -> tuple[Expr, ...]:
        return self.arguments

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return UserCall(self.type, self.function, children, self.shown)
