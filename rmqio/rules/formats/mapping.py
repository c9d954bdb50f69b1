"""The mapping of a set: what fields and log sources of rules are in the events of this place."""

from __future__ import annotations

import collections.abc
import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from rmqio.errors import LocalError, reason
from rmqio.hints import did_you_mean
from rmqio.rules.formats.base import Parsed
from rmqio.rules.ir import FIELD_KINDS, Atom, Condition, Kind, Rule, all_of, any_of, rebuilt, with_fields

Fields = tuple[tuple[str, tuple[str, ...]], ...]
_KEYS: Final = ("fields", "sources")
_SOURCE_KEYS: Final = ("category", "product", "service")
_PIPELINE_KEYS: Final = frozenset({"transformations", "postprocessing", "finalizers", "priority"})
_SCALARS: Final = (str, int, float, bool)


@dataclass(frozen=True, slots=True)
class SourceMapping:
    """All that holds for the events of a log source.

    Attributes:
      source: parts of the log source; a rule is for it if its own log source has all of them.
      when: fields and the values that they have in those events, one of each.
      fields: names of fields of such rules, and what they are in the events.
    """

    source: tuple[tuple[str, str], ...]
    when: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    fields: Fields = ()


@dataclass(frozen=True, slots=True)
class Mapping:
    """Names of fields, and conditions of log sources; or a pipeline of pySigma. See `Mapping.of`."""

    fields: Fields = ()
    sources: tuple[SourceMapping, ...] = ()
    pipeline_text: str = ""
    pipeline_object: Any = field(default=None, compare=False)

    @classmethod
    def of(cls, given: Any) -> Mapping:
        """Returns the mapping of a dict, of a YAML file by its path, or of a pipeline of pySigma.

        A dict whose keys are not `fields` or `sources` maps fields. A file is read here, so that workers need none.
        Raises `LocalError` for anything else.
        """
        if given is None:
            return cls()
        if isinstance(given, Mapping):
            return given
        if isinstance(given, (str, Path)):
            return cls._of_file(Path(given))
        if isinstance(given, collections.abc.Mapping):
            return cls._of_dict(given, "mapping")
        if type(given).__module__.partition(".")[0] == "sigma":
            return cls(pipeline_object=given)
        raise LocalError(f"mapping= takes a dict, a file or a pipeline of pySigma, not {type(given).__name__}")

    @classmethod
    def _of_file(cls, path: Path) -> Mapping:
        try:
            from rmqio.rules.formats import yaml_text
        except ImportError as error:
            raise LocalError(
                f"a mapping in YAML needs the extra 'sigma': pip install 'rmqio[sigma]' ({error})"
            ) from error
        try:
            text = path.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise LocalError(f"cannot read the mapping {path}: {reason(error)}") from error
        documents: list[yaml_text.Document] = []
        for each in yaml_text.documents(text):
            if isinstance(each, yaml_text.Fault):
                raise LocalError(f"the mapping {path}:{each.line}: {each.reason}")
            documents.append(each)
        if len(documents) > 1:
            raise LocalError(f"the mapping {path} has {len(documents)} documents; it must have one")
        found = documents[0].data if documents else None
        if not isinstance(found, dict):
            raise LocalError(
                f"the mapping {path} is not an object: it has fields and sources, or is a pipeline of pySigma"
            )
        if _PIPELINE_KEYS & found.keys():
            mapping = cls(pipeline_text=text)
            mapping.pipeline()  # a mistake in it is an error here, and not in a worker
            return mapping
        return cls._of_dict(found, str(path))

    @classmethod
    def _of_dict(cls, given: collections.abc.Mapping[Any, Any], name: str) -> Mapping:
        if not set(given) & set(_KEYS):
            return cls(_fields(given, name))
        _known(given, _KEYS, name)
        sources = given.get("sources") or []
        if not isinstance(sources, list):
            raise LocalError(f"{name}: sources must be a list, not {type(sources).__name__}")
        found = []
        for number, each in enumerate(sources):
            place = f"{name}: sources[{number}]"
            if not isinstance(each, collections.abc.Mapping):
                raise LocalError(f"{place} must be an object, not {type(each).__name__}")
            _known(each, (*_SOURCE_KEYS, "when", "fields"), place)
            source = tuple((key, str(each[key])) for key in _SOURCE_KEYS if each.get(key) is not None)
            if not source:
                raise LocalError(f"{place} has none of {', '.join(_SOURCE_KEYS)}")
            when = _when(each.get("when") or {}, place)
            found.append(SourceMapping(source, when, _fields(each.get("fields") or {}, f"{place}.fields")))
        return cls(_fields(given.get("fields") or {}, f"{name}: fields"), tuple(found))

    def identity(self) -> str:
        """Returns a text that changes when the mapping does."""
        parts = (self.fields, self.sources, self.pipeline_text, self.pipeline_object)
        return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def pipeline(self) -> Any:
        """Returns the pipeline of pySigma, or None. Raises `LocalError` if it is not valid."""
        if self.pipeline_object is not None:
            return self.pipeline_object
        if not self.pipeline_text:
            return None
        from rmqio.rules.formats.sigma import pipeline_of

        return pipeline_of(self.pipeline_text)

    def applied(self, given: Parsed) -> Parsed:
        """Returns the rules with the fields of the events, and the conditions of their log sources."""
        if not self.fields and not self.sources:
            return given
        rules = tuple(self._of_rule(each) for each in given.rules)
        fields = {each.id: self._fields_of(each) for each in given.rules}
        others = dict(self.fields)  # rules of another format

        def fields_of(name: str, rule_id: str) -> Sequence[str]:
            return fields.get(rule_id, others).get(name, (name,))

        correlations = tuple(with_fields(each, fields_of) for each in given.correlations)
        return replace(given, rules=rules, correlations=correlations)

    def _fields_of(self, rule: Rule) -> dict[str, tuple[str, ...]]:
        """Returns the fields of the events of a rule, by the names that rules have for them."""
        found: dict[str, tuple[str, ...]] = {}
        for fields, _ in self._alternatives(rule):
            for name, there in fields.items():
                found[name] = tuple(dict.fromkeys((*found.get(name, ()), *there)))
        return found

    def _alternatives(self, rule: Rule) -> Iterator[tuple[dict[str, tuple[str, ...]], list[Condition]]]:
        """Yields the fields and the conditions of the events that a rule can be for.

        Entries of one log source are alternatives, such as those of two programs that report it; one of each log source
        that the rule has a part in holds.
        """
        by_source: dict[frozenset[tuple[str, str]], list[tuple[int, SourceMapping]]] = {}
        for at, each in enumerate(self.sources):
            if set(each.source) <= set(rule.source):
                by_source.setdefault(frozenset(each.source), []).append((at, each))
        for some in product(*by_source.values()):
            fields, when = dict(self.fields), []
            for _, each in sorted(some, key=itemgetter(0)):
                fields |= dict(each.fields)
                when += [any_of(*(_is(name, value) for value in values)) for name, values in each.when]
            yield fields, when

    def _of_rule(self, rule: Rule) -> Rule:
        made: list[Condition] = []
        of_fields: dict[Fields, list[Condition]] = {}
        for fields, when in self._alternatives(rule):
            of_fields.setdefault(tuple(sorted(fields.items())), []).append(all_of(*when))
        for names, conditions in of_fields.items():
            made.append(all_of(any_of(*conditions), rebuilt(rule.condition, functools.partial(_renamed, dict(names)))))
        return replace(rule, condition=any_of(*made))


def _renamed(fields: dict[str, tuple[str, ...]], atom: Atom) -> Condition:
    names = [atom.field] if atom.field is None else fields.get(atom.field, (atom.field,))
    if atom.kind in FIELD_KINDS:
        others = fields.get(str(atom.value), (str(atom.value),))
        return any_of(*(replace(atom, field=name, value=other) for name in names for other in others))
    return any_of(*(replace(atom, field=name) for name in names))


def _is(name: str, value: Any) -> Atom:
    return Atom(name, Kind.EQUALS, value, ignore_case=isinstance(value, (str, bool)))


def _fields(given: Any, place: str) -> Fields:
    if not isinstance(given, collections.abc.Mapping):
        raise LocalError(f"{place} must be an object of names, not {type(given).__name__}")
    found = []
    for name, there in given.items():
        names = (there,) if isinstance(there, str) else tuple(there) if isinstance(there, list) else ()
        if not isinstance(name, str) or not names or not all(isinstance(each, str) for each in names):
            raise LocalError(f"{place}: {name!r} must be mapped to the name of a field, or to a list of names")
        found.append((name, names))
    return tuple(found)


def _when(given: Any, place: str) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    if not isinstance(given, collections.abc.Mapping):
        raise LocalError(f"{place}.when must be an object of fields and values, not {type(given).__name__}")
    found = []
    for name, value in given.items():
        values = tuple(value) if isinstance(value, list) else (value,)
        if not isinstance(name, str) or not values or not all(isinstance(each, _SCALARS) for each in values):
            raise LocalError(f"{place}.when: {name!r} must have a text, number or boolean, or a list of them")
        found.append((name, values))
    return tuple(found)


def _known(given: Iterable[Any], known: tuple[str, ...], place: str) -> None:
    for key in given:
        if key not in known:
            raise LocalError(f"{place}: there is no key {key!r}{did_you_mean(str(key), known)}")
