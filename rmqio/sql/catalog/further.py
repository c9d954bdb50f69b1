"""`--catalog`: a file of statements, or the address of a schema registry, whose subjects become tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rmqio.addresses import is_url, shown_url
from rmqio.sql.catalog.file import CatalogFile
from rmqio.sql.catalog.tables import FurtherTables, Table
from rmqio.sql.errors import SqlError
from rmqio.sql.scripts.script import Script
from rmqio.sql.scripts.texts import Texts

NOTHING = "none"


def file_of(catalogs: Sequence[str]) -> Path | None:
    """Returns the catalog that is a file; None: there is none. Raises `SqlError` for several."""
    files = [each for each in catalogs if not _is_registry(each) and each != NOTHING]
    if len(files) > 1:
        first, second = map(shown_url, files[:2])
        raise SqlError(f"--catalog names two files, {first} and {second}: what is created goes into one")
    if files and is_url(files[0]):
        raise SqlError(f"--catalog: the URL of a registry begins with http:// or https://, not {shown_url(files[0])}")
    return Path(files[0].removeprefix("file://")) if files else None


def further_of(catalogs: Sequence[str], texts: Texts) -> FurtherTables | None:
    """Returns the tables of the catalogs that are registries; None: there is none."""
    from rmqio.sql.catalog.registries import RegistryTables

    found = [RegistryTables(each, texts) for each in catalogs if _is_registry(each)]
    return None if not found else found[0] if len(found) == 1 else _Several(found)


def load_catalogs(script: Script, catalogs: Sequence[str]) -> None:
    """Adds the tables of catalogs to a script, whose own statements come after. Raises `SqlError`."""
    script.catalog.further = further_of(catalogs, script.texts)
    if (path := file_of(catalogs)) is not None:
        if not path.exists():
            raise SqlError(f"cannot read the catalog {path}: there is no such file")
        CatalogFile(path).load(script)


def _is_registry(catalog: str) -> bool:
    return catalog.startswith(("http://", "https://"))


class _Several:
    """The tables of several registries; of one name, that of the first."""

    def __init__(self, members: Sequence[FurtherTables]) -> None:
        self._members = members

    def names(self) -> Sequence[str]:
        return sorted({name for each in self._members for name in each.names()})

    def table(self, name: str) -> Table | None:
        return next((found for each in self._members if (found := each.table(name)) is not None), None)

    def text(self, name: str) -> str:
        return next((text for each in self._members if name in each.names() and (text := each.text(name))), "")
