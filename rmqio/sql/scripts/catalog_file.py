"""A catalog in a file: CREATE TABLE, CREATE VIEW and CREATE FUNCTION, as they were typed.

The shell adds statements to it, and removes what is dropped; the rest of the file stays as it is. A change replaces the
file as a whole, and shells that change it at the same time wait for each other.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqio.addresses import is_url, shown_url
from rmqio.sql.catalog.tables import FurtherTables, Table
from rmqio.sql.errors import SqlError
from rmqio.sql.pieces import pieces
from rmqio.sql.scripts.script import Script, Texts
from rmqio.sql.syntax import statements
from rmqio.sql.syntax.parser import parse

Created = statements.CreateTable | statements.CreateView | statements.CreateFunction
KINDS: Final = {statements.CreateTable: "TABLE", statements.CreateView: "VIEW", statements.CreateFunction: "FUNCTION"}
_HEAD: Final = "-- Tables, views and functions of `rmqio sql`. The shell adds to this file.\n"


@dataclass(frozen=True, slots=True)
class CatalogFile:
    """A file of statements; if it is not there, the first change creates it."""

    path: Path

    def load(self, script: Script) -> list[Created]:
        """Adds what the file creates to a script, and returns its statements.

        The query of a view is checked where the view is used, since it can depend on SET. Raises `SqlError`.
        """
        found: list[Created] = []
        for statement in script.texts.parse(self._text(), str(self.path)):
            if not isinstance(statement, Created):
                raise script.texts.error(
                    "a catalog has CREATE TABLE, CREATE VIEW and CREATE FUNCTION only", statement.span
                )
            if isinstance(statement, statements.CreateView):
                with script.placing(statement):
                    script.catalog.create_view(statement)
            else:
                script.run_statement(statement)
            found.append(statement)
        return found

    def add(self, kind: str, name: str, text: str) -> None:
        """Adds a statement, given without comments after it.

        Raises `SqlError` if the file has the name already, or cannot be written.
        """
        with self._changing() as before:
            if any(_is(each, kind, name) for each in parse(before, str(self.path))):
                raise SqlError(f"{self.path} has a {kind.lower()} {name} already, which another program has added")
            parts = pieces(before)
            is_open = bool(parts) and not parts[-1].is_ended and not parts[-1].is_empty
            gap = "\n;\n\n" if is_open else "\n\n"
            self._replace(f"{(before or _HEAD).rstrip()}{gap}{text.strip()};\n")

    def remove(self, kind: str, name: str) -> None:
        """Removes a statement, if the file has it. Raises `SqlError` if the file cannot be written."""
        with self._changing() as before:
            for each in parse(before, str(self.path)):
                if _is(each, kind, name):
                    end = next(piece.end for piece in pieces(before) if piece.end >= each.span.end)
                    head, tail = before[: each.span.start].rstrip(), before[end:].lstrip()
                    self._replace(f"{head}\n\n{tail}".strip() + "\n")
                    return

    def _text(self) -> str:
        try:
            return self.path.read_text("utf-8-sig")
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError as error:
            raise SqlError(f"the catalog {self.path} is not UTF-8: byte {error.start} is not") from error
        except OSError as error:
            raise SqlError(f"cannot read the catalog {self.path}: {error.strerror}") from error

    @contextlib.contextmanager
    def _changing(self) -> Iterator[str]:
        """Yields the file's text while no other program changes it."""
        import fcntl

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path.with_name(f".{self.path.name}.lock"), "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield self._text()
        except OSError as error:
            raise SqlError(f"cannot write the catalog {self.path}: {error.strerror}") from error

    def _replace(self, text: str) -> None:
        """The file has the old text or the new one, also if the machine fails."""
        target = self.path.resolve()  # a link stays one
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # only for its owner
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(OSError):  # the file is new
                os.chmod(name, target.stat().st_mode & 0o777)
            os.replace(name, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def _is(statement: statements.Statement, kind: str, name: str) -> bool:
    return isinstance(statement, Created) and KINDS[type(statement)] == kind and statement.name.text == name


# `--catalog`: a file of statements, or the address of a schema registry, whose subjects become tables.

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
    from rmqio.sql.scripts.registries import RegistryTables

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
