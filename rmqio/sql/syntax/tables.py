"""The parser's tables, kept from one process to the next: Lark takes a second to compute them from the grammar.

They are in a file of the user's cache folder, as JSON. A file of another grammar or of another Lark is replaced. If the
folder cannot be used, each process computes its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import lark
import platformdirs
from lark import Lark
from lark.grammar import Rule
from lark.lexer import TerminalDef

_WITH_NUMBERS: Final = "#"
"""The only key of an object that stands for a mapping with numbers for keys, which JSON does not have."""


def parser_of(grammar: str, callbacks: Mapping[str, Any], *, folder: Path | None = None, **options: Any) -> Lark:
    """Returns the parser of a grammar. `callbacks`: of Lark's lexer, by terminal. `options`: of Lark; no functions."""
    file = (folder or _folder()) / "grammar.json"
    key = hashlib.sha256(repr((lark.__version__, grammar, sorted(options.items()))).encode()).hexdigest()
    # A file that somebody has damaged can raise anything
    with contextlib.suppress(Exception):
        kept = json.loads(file.read_bytes(), object_hook=_unnamed)
        if kept["key"] == key:
            found: Lark = Lark._load_from_dict(kept["data"], kept["memo"], lexer_callbacks=dict(callbacks))  # type: ignore[no-untyped-call]
            return found
    made = Lark(grammar, lexer_callbacks=dict(callbacks), **options)
    with contextlib.suppress(OSError):
        _write(file, key, made)
    return made


def _folder() -> Path:
    given = os.environ.get("RMQIO_CACHE")
    return (Path(given) if given else platformdirs.user_cache_path("rmqio")) / "sql"


def _write(file: Path, key: str, parser: Lark) -> None:
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    data["options"] = data["options"] | {"lexer_callbacks": {}}
    text = json.dumps(_named({"key": key, "data": data, "memo": memo}), separators=(",", ":"))
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=file.stem, delete=False) as part:
        part.write(text)
    try:
        os.replace(part.name, file)
    except OSError:
        os.unlink(part.name)
        raise


def _named(value: Any) -> Any:
    if isinstance(value, dict):
        named = {key: _named(each) for key, each in value.items()}
        return {_WITH_NUMBERS: named} if any(isinstance(key, int) for key in value) else named
    return [_named(each) for each in value] if isinstance(value, list | tuple) else value


def _unnamed(value: dict[str, Any]) -> dict[Any, Any]:
    numbered = value.get(_WITH_NUMBERS)
    return value if numbered is None else {int(key): each for key, each in numbered.items()}
