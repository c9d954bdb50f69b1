"""YAML of users: whatever it holds, there is a value, or one error with the line and the id of the rule."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml

DEEPEST: Final = 100
"""Levels of lists and objects in a document. Rules have about ten, and more is nobody's rule."""
_ID: Final = re.compile(r"^(id|name|title)[ \t]*:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_QUOTED: Final = re.compile(r"^(['\"])(.*)\1$")
_NO_TEXT: Final = "[]{}'\"|>&*!%@`#,"
"""What no text begins with that has no quotes: a list, for example, or a quote that does not end."""
_MERGE: Final = "tag:yaml.org,2002:merge"
_TEXT: Final = "tag:yaml.org,2002:str"
_START: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)


class Fault(NamedTuple):
    """A mistake and its place: line and column from 1; `rule_id` is empty if it is not known."""

    reason: str
    line: int
    column: int
    rule_id: str


class Document(NamedTuple):
    """A document: the tree, which knows places, and the value."""

    node: Any
    data: Any


def documents(text: str, loader_class: type[Any] | None = None) -> Iterator[Document | Fault]:
    """Yields the documents of a text. One that has no value is a fault; after one that is no YAML there are no more."""
    base: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if loader_class is None else loader_class
    loader = _placed(base)(text)
    try:
        while True:
            try:
                if not loader.check_node():
                    return
                node = loader.get_node()
            except Exception as error:  # noqa: BLE001  # yaml raises many kinds, also those of Python
                yield _fault(error, text, None)
                return
            try:
                if (deep := _too_deep(node)) is not None:
                    raise yaml.MarkedYAMLError(
                        problem=f"it has more than {DEEPEST} levels, or a circle", problem_mark=deep
                    )
                found: Document | Fault = Document(node, loader.construct_document(node))
            except Exception as error:  # noqa: BLE001
                loader.reset()
                found = _fault(error, text, node)
            yield found
    finally:
        loader.dispose()


def _placed(loader_class: type[Any]) -> type[Any]:
    """The loader, whose errors have the place of the value that they are about."""

    class Placed(loader_class):  # type: ignore[misc]
        def construct_object(self, node: Any, deep: bool = False) -> Any:
            with _Place(node):
                return super().construct_object(node, deep)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            with _Place(node):
                for key, _ in node.value:  # texts as they are written: a field can be called 4688, or on
                    if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                        key.tag = _TEXT
                return super().construct_mapping(node, deep)

        def reset(self) -> None:
            """Forgets a document that could not be made."""
            fresh: tuple[Any, Any, Any] = ({}, {}, [])
            self.constructed_objects, self.recursive_objects, self.state_generators = fresh
            self.deep_construct = False

    return Placed


class _Place:
    """Gives an error that has no place that of a node."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, yaml.MarkedYAMLError) or not isinstance(error, Exception):
            return
        node = self._node
        if isinstance(node, yaml.ScalarNode):
            what = str(node.tag).rpartition(":")[2]
            shown = node.value if len(node.value) <= 40 else f"{node.value[:37]}..."
            reason = f"{shown!r} is no {what}"
            is_long = len(node.value) > sys.get_int_max_str_digits() > 0  # Python's own words are about programs
            reason += (
                ": it has too many digits" if is_long else f": {_line(error)}" if type(error) is ValueError else ""
            )
        elif isinstance(error, TypeError):
            reason = "a key is a text or a number, and here is one that is a list or an object"
        else:
            reason = _line(error)
        raise yaml.MarkedYAMLError(problem=reason, problem_mark=node.start_mark) from error


def _fault(error: Exception, text: str, node: Any) -> Fault:
    mark: Any = None
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        reason = " ".join(str(error.problem or error.context).split())
    else:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else _line(error)
    if mark is None and node is not None:
        mark = node.start_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    return Fault(f"this is not YAML: {reason}", line, column, _rule_id(text, line, column))


def _rule_id(text: str, line: int, column: int) -> str:
    """The id of the document that a place is in: what could not be parsed is looked through as text.

    A document that does not end is told at the line that begins the next one.
    """
    lines = text.split("\n")
    start = sum(len(each) + 1 for each in lines[: line - 1]) + column - 1
    begins = max((found.end() for found in _START.finditer(text, 0, start)), default=0)
    following = _START.search(text, start)
    found = dict(reversed(_ID.findall(text, begins, following.start() if following else len(text))))
    values = (_QUOTED.sub(r"\2", found.get(name, "")) for name in ("id", "name", "title"))
    return next((value[:200] for value in values if value and value[0] not in _NO_TEXT), "")


def _too_deep(root: Any) -> Any:
    """The place of a value that is nested too deep; None: there is none. Aliases can make circles."""
    depths: dict[int, int] = {}
    todo = [(root, 1)]
    while todo:
        node, depth = todo.pop()
        if not isinstance(node, yaml.CollectionNode) or depths.get(id(node), 0) >= depth:
            continue
        if depth > DEEPEST:
            return node.start_mark
        depths[id(node)] = depth
        for each in node.value:
            todo += [(one, depth + 1) for one in each] if isinstance(each, tuple) else [(each, depth + 1)]
    return None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
